// The Llama family and BERT as models: sizes, initial weights and invalid configurations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/errors.h"
#include "model_zoo/presets.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

constexpr LlamaConfig kToy{.vocabulary = 40,
                           .channels = 24,
                           .num_layers = 2,
                           .num_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim = 6,
                           .mlp_channels = 50,
                           .max_positions = 32};
constexpr BertConfig kToyBert{.vocabulary = 40,
                              .max_positions = 32,
                              .channels = 24,
                              .num_layers = 2,
                              .num_heads = 4,
                              .mlp_channels = 50};

/// The numbers are those of the Hugging Face hub.
TEST(Architectures, PublishedModelsHaveTheirNumberOfParameters) {
  const std::pair<const char*, uint64_t> published[] = {
      {"llama-2-7b", 6'738'415'616},     {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496}, {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},   {"mistral-7b", 7'248'023'552},
      {"qwen2.5-0.5b", 494'032'768},     {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-0.6b", 596'049'920},       {"qwen3-8b", 8'190'735'360},
      {"bert-base", 109'514'298}};
  for (const auto& [name, count] : published) {
    EXPECT_EQ(num_parameters(find_preset(name).config), count) << name;
  }
}

TEST(Architectures, EachOptionChangesTheNumberOfParameters) {
  for (int options = 0; options < 32; ++options) {
    LlamaConfig config = kToy;
    config.tied_head = options & 1;
    config.qkv_bias = options & 2;
    config.output_bias = options & 4;
    config.mlp_bias = options & 8;
    config.qk_norm = options & 16;
    const Llama model(config, 1, 4, DType::F32);
    uint64_t sum = 0;
    for (const Parameter& p : model.parameters()) {
      sum += static_cast<uint64_t>(p.shape.num_elements());
    }
    EXPECT_EQ(num_parameters(config), sum) << options;
  }
}

TEST(Architectures, FlopsOfAStepCountAllProducts) {
  const LlamaConfig& c = kToy;
  const double matrices = static_cast<double>(num_parameters(c) - 40 * 24);
  const double scores = 2.0 * 2 * 24 * 16;  // layers, query channels, length
  EXPECT_DOUBLE_EQ(training_flops(c, 100, 16), 600 * (matrices + scores));
  LlamaConfig narrow = c;
  narrow.sliding_window = 4;
  EXPECT_DOUBLE_EQ(training_flops(narrow, 100, 16), 600 * (matrices + scores / 4));
  LlamaConfig tied = c;
  tied.tied_head = true;
  EXPECT_DOUBLE_EQ(training_flops(tied, 100, 16), training_flops(c, 100, 16));
}

TEST(Architectures, PackedModelsHaveDocumentStartsAsInput) {
  const auto names = [](const ModelConfig& config, bool packed) {
    std::string all;
    const MicroBatchShape shape{.batch_size = 2, .length = 8, .packed = packed};
    for (const InputSpec& spec : create_model(config, shape, DType::F32)->inputs()) {
      EXPECT_EQ(spec.shape, (Shape{2, 8}));
      all += spec.name + " ";
    }
    return all;
  };
  const Gpt2Config gpt{.vocabulary = 40, .channels = 24, .num_layers = 1, .num_heads = 4};
  EXPECT_EQ(names(gpt, false), "tokens positions targets ");
  EXPECT_EQ(names(kToy, true), "tokens positions targets document_starts ");
  EXPECT_EQ(names(gpt, true), "tokens positions targets document_starts ");
  EXPECT_EQ(names(kToyBert, false), "tokens positions targets token_types document_starts ");
}

TEST(Architectures, HaveNamesAndSizes) {
  EXPECT_EQ(architecture_of(kToy), "llama");
  EXPECT_EQ(architecture_of(kToyBert), "bert");
  EXPECT_EQ(architecture_of(Gpt2Config{}), "gpt2");
  EXPECT_TRUE(predicts_next_token(kToy));
  EXPECT_FALSE(predicts_next_token(kToyBert));
}

// ---- Packed documents ---------------------------------------------------------------------------

/// The loss of `num_rows` rows of 16 tokens in all, with initial weights. `starts` is for packed
/// rows.
double fresh_loss(const ModelConfig& config, int64_t num_rows, std::vector<int32_t> starts) {
  const int64_t length = 16 / num_rows;
  const auto model = create_model(
      config, {.batch_size = num_rows, .length = length, .packed = !starts.empty()}, DType::F32);
  std::vector<int32_t> tokens, positions, targets;
  for (int32_t i = 0; i < 16; ++i) {
    tokens.push_back(i * 7 % 40);
    targets.push_back((i * 11 + 3) % 40);
    positions.push_back(i % 8);
  }
  const auto prepared = prepare(*model, {.dtype = DType::F32, .evaluation_batches = 1}, {});
  const auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  Trainer trainer(*model, *device, prepared);
  write_initial_values(trainer, *model, 3);
  MicroBatch batch{{}, 16};
  for (std::vector<int32_t>* values : {&tokens, &positions, &targets, &starts}) {
    if (values->empty()) continue;
    batch.inputs.push_back(
        {reinterpret_cast<std::byte*>(values->data()), DType::I32, {num_rows, length}});
  }
  return trainer.evaluate(std::span(&batch, 1));
}

TEST(Architectures, PackedDocumentsHaveTheLossOfSeparateRows) {
  const Gpt2Config gpt{
      .vocabulary = 40, .max_positions = 16, .channels = 24, .num_layers = 2, .num_heads = 4};
  std::vector<int32_t> starts(16, 0), one_document(16, 0);
  std::fill(starts.begin() + 8, starts.end(), 8);
  for (const ModelConfig& config : {ModelConfig(gpt), ModelConfig(kToy)}) {
    const double rows = fresh_loss(config, 2, {});
    EXPECT_NEAR(fresh_loss(config, 1, starts), rows, 1e-6 * rows) << architecture_of(config);
    EXPECT_GT(std::abs(fresh_loss(config, 1, one_document) - rows), 1e-4 * rows);
  }
}

/// Expects that `make` throws a ConfigError whose message contains `part`.
template <class Make>
void expect_rejected(const Make& make, const std::string& part) {
  try {
    make();
    ADD_FAILURE() << part << ": accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Architectures, InvalidConfigurationsAreRejectedWithTheirNumbers) {
  const auto llama_with = [](void (*change)(LlamaConfig&)) {
    LlamaConfig config = kToy;
    change(config);
    return [config] { Llama(config, 1, 8, DType::F32); };
  };
  expect_rejected(llama_with([](LlamaConfig& c) { c.num_kv_heads = 3; }), "3 heads of keys");
  expect_rejected(llama_with([](LlamaConfig& c) { c.head_dim = 5; }), "head_dim is 5");
  expect_rejected(llama_with([](LlamaConfig& c) { c.head_dim = 0; }), "head_dim is 0");
  expect_rejected(llama_with([](LlamaConfig& c) { c.mlp_channels = -1; }), "-1");
  expect_rejected(llama_with([](LlamaConfig& c) { c.sliding_window = 0; }), "window is 0");
  expect_rejected(llama_with([](LlamaConfig& c) { c.norm_epsilon = -1; }), "epsilon is -1");
  expect_rejected([] { Llama(kToy, 1, 33, DType::F32); }, "`seq_length` 32");
  expect_rejected([] { Llama(kToy, 0, 8, DType::F32); }, "micro-batch size is 0");
  expect_rejected([] { Bert(kToyBert, 1, 33, DType::F32); }, "`seq_length` 32");
  BertConfig bert = kToyBert;
  bert.num_heads = 5;
  expect_rejected([&] { Bert(bert, 1, 8, DType::F32); }, "5 heads");
  bert = kToyBert;
  bert.num_token_types = 0;
  expect_rejected([&] { Bert(bert, 1, 8, DType::F32); }, "token types is 0");
}

}  // namespace
}  // namespace ebb::test
