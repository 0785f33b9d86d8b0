#include "model_zoo/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "io/safetensors_folder_writer.h"
#include "io/state_file.h"
#include "model_zoo/checkpoint_part.h"
#include "model_zoo/hugging_face_weights.h"
#include "model_zoo/model_files.h"
#include "model_zoo/state_header.h"

namespace ebb {
namespace {

const OwnerSet kOnlyRank = {true};

constexpr uint64_t kHeader = 32;  // offset of the JSON in a state file (io/state_file.h)

std::string text_of(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  return fmt::format("({})", text);
}

/// The first difference between two lists of parameters; nullopt if there is none.
std::optional<std::string> difference(const StateFileHeader& file, const StateFileHeader& model) {
  const size_t common = std::min(file.parameters.size(), model.parameters.size());
  for (size_t i = 0; i < common; ++i) {
    const auto &has = file.parameters[i], &wanted = model.parameters[i];
    if (has == wanted) continue;
    return fmt::format("parameter {} is '{}' {}, the model's is '{}' {}", i, has.name,
                       text_of(has.shape), wanted.name, text_of(wanted.shape));
  }
  if (file.parameters.size() == model.parameters.size()) return std::nullopt;
  return fmt::format("it has {} parameters, the model has {}", file.parameters.size(),
                     model.parameters.size());
}

void check_model(const StateFileReader& file, const Layout& layout) {
  const StateFileHeader model = state_header(layout, {});
  if (file.header().weight_type != model.weight_type) {
    throw FormatError(
        file.path(), kHeader,
        fmt::format("the state is of {} weights, the run's are {}; continue with `dtype` "
                    "{}, or load only the weights with `model`",
                    name_of(file.header().weight_type), name_of(model.weight_type),
                    name_of(file.header().weight_type)));
  }
  if (file.header().planes != model.planes) {
    throw FormatError(file.path(), kHeader, "the planes are not those of this optimizer");
  }
  if (const auto what = difference(file.header(), model)) {
    throw FormatError(file.path(), kHeader, "the state is of another model: " + *what);
  }
}

uint64_t number(const StateFileReader& file, const char* name) {
  const auto found = file.header().numbers.find(name);
  if (found != file.header().numbers.end()) return found->second;
  throw FormatError(file.path(), kHeader, fmt::format("there is no {}", name));
}

LossScale read_loss_scale(const StateFileReader& file) {
  if (file.header().weight_type != DType::F16) return {};
  const uint64_t value = number(file, kLossScale), num_good_steps = number(file, kNumGoodSteps);
  if (std::has_single_bit(value) && value <= kLargestLossScale &&
      num_good_steps < kGoodStepsToDouble) {
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(num_good_steps)};
  }
  throw FormatError(
      file.path(), kHeader,
      fmt::format("a loss scale of {} after {} good steps is not possible", value, num_good_steps));
}

}  // namespace

uint64_t state_file_bytes(const Layout& layout) {
  OptimizerCounters largest;  // the largest numbers, so also the most digits
  largest.num_updates = INT64_MAX;
  largest.num_skipped = UINT64_MAX;
  largest.num_skipped_in_a_row = UINT32_MAX;
  largest.loss_scale = {UINT32_MAX, UINT32_MAX};
  return StateFilePlaces(state_header(layout, largest)).file_bytes();
}

void write_state(StateReader reader, const std::string& path,
                 const std::map<std::string, uint64_t>& numbers) {
  StateFileWriter file(path, state_header(reader.layout(), reader.counters(), numbers));
  write_planes(
      std::move(reader), kOnlyRank, [] {}, file);
  file.finish();
}

void read_state(Trainer& trainer, const std::string& path) {
  StateFileReader file(path);
  check_model(file, trainer.layout());
  const std::vector<size_t> position = state_positions(trainer.layout());
  const OptimizerCounters counters{
      .num_updates = static_cast<int64_t>(number(file, kNumUpdates)),
      .num_skipped = number(file, kNumSkipped),
      .num_skipped_in_a_row = static_cast<uint32_t>(number(file, kNumSkippedInARow)),
      .loss_scale = read_loss_scale(file)};
  trainer.restore(counters, [&](ParameterId id, size_t plane, std::span<std::byte> into) {
    file.read(position[id], plane, into);
  });
}

void write_weights(const StateReader& reader, const ModelConfig& config,
                   const Parameters& parameters, DType type, const std::string& from,
                   const std::string& to) {
  const std::vector<MappedTensor> tensors = map_tensors(config, parameters);
  SafetensorsFolderWriter files(to, stored_tensors(tensors, stored_type_of(type)));
  write_tensors(
      reader, tensors, type, kOnlyRank, [] {}, files);
  files.finish();
  write_model_files(from, config, type, to);
}

}  // namespace ebb
