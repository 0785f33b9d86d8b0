// The gradients of the models of the library agree with differences of their losses.
#include <gtest/gtest.h>

#include <memory>

#include "autograd/gradient_check.h"
#include "device/random.h"
#include "model_zoo/bert.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/llama.h"
#include "model_zoo/mlp.h"

namespace ebb::test {
namespace {

constexpr int64_t kVocabulary = 19, kBatch = 2, kLength = 5;

/// Tokens, labels and types are small numbers; positions count up. Each row is one document.
std::vector<float> contents_of(const InputSpec& spec, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(spec.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = philox4x32(i, 0, seed)[0];
    if (spec.dtype == DType::F32) {
      values[i] = static_cast<float>(2 * uniform(word) - 1);
      continue;
    }
    const bool is_position = spec.name == "positions";
    const uint32_t limit = spec.name == "token_types"       ? 2
                           : spec.name == "document_starts" ? 1
                                                            : kVocabulary;
    const auto number = static_cast<int32_t>(is_position ? i % kLength : word % limit);
    values[i] = std::bit_cast<float>(number);
  }
  return values;
}

void expect_right_gradients(const Model& model) {
  std::vector<std::vector<float>> contents;
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : model.inputs()) {
    contents.push_back(contents_of(spec, contents.size() + 1));
    inputs.push_back(
        {reinterpret_cast<std::byte*>(contents.back().data()), spec.dtype, spec.shape});
  }
  const GradientCheck check = check_gradients(model, inputs, {.elements_per_parameter = 6});
  EXPECT_TRUE(check.passed()) << check.message();
  EXPECT_GT(check.num_elements, 20);
  EXPECT_LT(check.too_small.size(), model.parameters().size() / 3) << check.message();
}

TEST(GradientsOfModels, Mlp) { expect_right_gradients(Mlp({7, 12, kVocabulary}, 6, DType::F32)); }

TEST(GradientsOfModels, Gpt2) {
  const Gpt2Config config{.vocabulary = kVocabulary,
                          .max_positions = 8,
                          .channels = 12,
                          .num_layers = 2,
                          .num_heads = 3};
  expect_right_gradients(Gpt2(config, kBatch, kLength, DType::F32));
}

TEST(GradientsOfModels, Llama) {
  LlamaConfig config{.vocabulary = kVocabulary,
                     .channels = 12,
                     .num_layers = 2,
                     .num_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim = 4,
                     .mlp_channels = 20,
                     .max_positions = 8};
  config.qk_norm = true;
  expect_right_gradients(Llama(config, kBatch, kLength, DType::F32));
}

TEST(GradientsOfModels, Bert) {
  const BertConfig config{.vocabulary = kVocabulary,
                          .max_positions = 8,
                          .channels = 12,
                          .num_layers = 2,
                          .num_heads = 3,
                          .mlp_channels = 20};
  expect_right_gradients(Bert(config, kBatch, kLength, DType::F32));
}

}  // namespace
}  // namespace ebb::test
