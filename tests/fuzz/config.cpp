// config.json of a model, and what the commands derive from it before they read weights.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "fuzz/fuzz.h"
#include "model_zoo/architecture.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/model_files.h"

namespace ebb::fuzz {
namespace {

constexpr int64_t kLength = 16;

/// Declares the model, as each command does.
void check_model(const ModelConfig& config) {
  const int64_t length = std::min(kLength, sizes_of(config).max_positions);
  const uint64_t expected = num_parameters(config);
  const auto model = create_model(config, {.batch_size = 1, .length = length}, DType::BF16);
  uint64_t elements = 0;
  for (const Parameter& parameter : model->parameters()) {
    const int64_t count = parameter.shape.num_elements();
    require(count > 0, "each parameter has elements");
    const bool overflows =
        __builtin_add_overflow(elements, static_cast<uint64_t>(count), &elements);
    require(!overflows, "the number of elements fits 64 bits");
  }
  require(elements == expected, "the parameters of the model are counted");
  require(training_flops(config, 1, length) > 0, "the work of a step is above 0");
}

/// A configuration must be the same after it was written and read again.
void check_round_trip(const ModelConfig& config) {
  must_accept([&] {
    const std::string text = make_config_json(config, DType::F32);
    write_file("config.json", bytes_of(text));
    require(make_config_json(read_model_config(folder()), DType::F32) == text,
            "a configuration that was written is the same");
  });
}

}  // namespace

void test_input(Bytes input) {
  std::filesystem::remove(folder() + "/generation_config.json");
  write_file("config.json", input);
  is_accepted([] { copy_config_json(folder(), DType::F32); });
  is_accepted([] { end_tokens(folder()); });  // without generation_config.json
  write_file("generation_config.json", input);
  is_accepted([] { end_tokens(folder()); });
  is_accepted([] {
    const ModelConfig config = read_model_config(folder());
    note_accepted();
    check_model(config);
    check_round_trip(config);
  });
}

}  // namespace ebb::fuzz
