// Evaluation and generation give the logits and the greedy text of transformers. The test is
// skipped if Python has no transformers; EBB_PYTHON names a Python.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/json_text.h"
#include "model_zoo/generation.h"
#include "model_zoo/hugging_face_config.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/model_zoo/python.h"

namespace ebb::test {
namespace {

const std::vector<int32_t> kTokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9};
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};
constexpr int64_t kMaxTokens = 10;

/// An inference with the weights of a folder.
struct Loaded {
  PreparedInference prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Inference> inference;

  Loaded(const std::string& name, const ModelConfig& config, std::span<const ForwardSpec> passes) {
    prepared = prepare_inference(
        passes, {.dtype = DType::F32, .chunk_bytes = 256 << 10, .random_weights = false},
        {.device = {.num_threads = 1}});
    device = create_device({.profile = {.num_threads = 1}, .poison = true});
    inference = std::make_unique<Inference>(*device, prepared);
    const SafetensorsFolder folder(hf_folder(name));
    load_weights(folder, match_tensors(config, passes[0].model->parameters(), folder),
                 [this](ParameterId id, uint64_t first, std::span<const float> values) {
                   inference->write_parameter(id, first, values);
                 });
  }
};

std::vector<float> logits_of(const std::string& name) {
  const ModelConfig config = read_model_config(hf_folder(name));
  const auto length = static_cast<int64_t>(kTokens.size());
  const auto model = create_model(config, {.length = length}, DType::F32);
  const ForwardSpec pass{
      .model = model.get(), .logits_rows = length, .num_classes = sizes_of(config).vocabulary};
  Loaded loaded(name, config, {&pass, 1});
  std::vector<int32_t> tokens = kTokens, positions(kTokens.size()), targets(kTokens.size(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  const auto view = [&](std::vector<int32_t>& v) {
    return Tensor{reinterpret_cast<std::byte*>(v.data()), DType::I32, {1, length}};
  };
  loaded.inference->run(0, {.inputs = {view(tokens), view(positions), view(targets)}});
  std::vector<float> logits(static_cast<size_t>(length * pass.num_classes));
  loaded.inference->read_logits(0, logits);
  return logits;
}

std::vector<int32_t> text_of(const std::string& name) {
  const ModelConfig config = read_model_config(hf_folder(name));
  Generation generation(
      config, {.prompt_length = static_cast<int64_t>(kPrompt.size()), .max_tokens = kMaxTokens},
      DType::F32);
  Loaded loaded(name, config, generation.passes());
  std::vector<int32_t> text;
  std::span<const float> logits = generation.read_prompt(*loaded.inference, kPrompt);
  for (int64_t i = 0; i < kMaxTokens; ++i) {
    text.push_back(choose_token(logits, {}, static_cast<uint64_t>(i)));
    logits = generation.read_token(*loaded.inference, text.back());
  }
  return text;
}

double deviation(const std::vector<float>& own, const std::vector<double>& theirs) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    largest = std::fmax(largest, std::abs(theirs.at(i)));
    error = std::fmax(error, std::abs(theirs.at(i) - own[i]));
  }
  return error / largest;
}

TEST(HfGeneration, GivesTheLogitsAndTheTextOfTransformers) {
  EBB_SKIP_WITHOUT_PYTHON("torch, transformers");
  const std::vector<std::string> names = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
  std::string command =
      fmt::format(R"({} {} '{{"tokens": {}, "prompt": {}, )"
                  R"("max_tokens": {}}}')",
                  python(), source_path("tests/model_zoo/transformers_generation.py"), kTokens,
                  kPrompt, kMaxTokens);
  for (const std::string& name : names) command += " " + hf_folder(name);
  const std::string said = output_of(command);
  ASSERT_FALSE(said.empty()) << command;
  const auto theirs = parse_json(said);
  std::vector<float> before;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto logits = theirs[i]["logits"].get<std::vector<double>>();
    const std::vector<float> own = logits_of(names[i]);
    ASSERT_EQ(own.size(), logits.size());
    EXPECT_LT(deviation(own, logits), 2e-6) << names[i];
    if (!before.empty()) {  // the logits of the previous model must differ
      EXPECT_GT(deviation(before, logits), 1e-2);
    }
    before = own;
    EXPECT_EQ(text_of(names[i]), theirs[i]["text"].get<std::vector<int32_t>>()) << names[i];
  }
}

}  // namespace
}  // namespace ebb::test
