// Generation with a cache gives the same bits as runs over the whole text, with each memory budget.
// The second part tests the choice of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model_zoo/generation.h"

namespace ebb::test {
namespace {

constexpr int64_t kVocabulary = 203;

LlamaConfig llama() {
  return {.vocabulary = kVocabulary,
          .channels = 96,
          .num_layers = 3,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 24,
          .mlp_channels = 200,
          .max_positions = 96};
}

struct Case {
  std::string name;
  ModelConfig config;
};

std::vector<Case> cases() {
  LlamaConfig window = llama(), qwen3 = llama();
  window.sliding_window = 7;
  qwen3.qk_norm = qwen3.tied_head = qwen3.qkv_bias = true;
  qwen3.rotary = {.scaling = RotaryScaling::Yarn, .factor = 4, .original_max_positions = 24};
  return {{"gpt2", Gpt2Config{.vocabulary = kVocabulary,
                              .max_positions = 96,
                              .channels = 96,
                              .num_layers = 3,
                              .num_heads = 4}},
          {"llama", llama()},
          {"window", window},
          {"qwen3", qwen3}};
}

class GenerationTest : public testing::TestWithParam<std::tuple<DType, Case>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  const ModelConfig& config() const { return std::get<1>(GetParam()).config; }
};
INSTANTIATE_TEST_SUITE_P(Cases, GenerationTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16),
                                          testing::ValuesIn(cases())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

std::vector<int32_t> prompt() {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 17; ++i) tokens.push_back(i * i * 7 % kVocabulary);
  return tokens;
}

/// Makes weights so large that the next token depends on all tokens before.
void spread_weights(Inference& inference) {
  for (ParameterId id = 0; id < inference.layout().num_parameters(); ++id) {
    const ParameterInfo& info = inference.layout().parameter(id);
    if (info.shape.rank() < 2) continue;
    std::vector<float> values = inference.read_parameter(info.name);
    for (float& x : values) x *= 6;
    inference.write_parameter(info.name, values);
  }
}

InferenceOptions options_of(DType dtype) {
  return {.dtype = dtype, .chunk_bytes = 65536 * size_of(dtype), .seed = 5};
}

struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of each choice of a token
  size_t loaded_bytes = 0;
  bool operator==(const Text& other) const {
    return tokens == other.tokens && logits == other.logits;
  }
};

struct Settings {
  int64_t num_tokens = 12;
  bool smallest_budget = false;
  int64_t part_length = 512;
  int num_threads = 1;
  Sampling sampling = {};
};

Text generate(const ModelConfig& config, DType dtype, const Settings& s = {}) {
  const std::vector<int32_t> begin = prompt();
  Generation generation(config,
                        {.prompt_length = static_cast<int64_t>(begin.size()),
                         .max_tokens = s.num_tokens,
                         .part_length = s.part_length},
                        dtype);
  Budgets budgets{.device = {.num_threads = s.num_threads}};
  if (s.smallest_budget) {
    budgets.device_memory =
        prepare_inference(generation.passes(), options_of(dtype), budgets).smallest_device_bytes;
  }
  const PreparedInference prepared =
      prepare_inference(generation.passes(), options_of(dtype), budgets);
  const auto device = create_device({.profile = {.num_threads = s.num_threads},
                                     .memory_bytes = prepared.ledger.total(Tier::Device),
                                     .poison = true});
  Inference inference(*device, prepared);
  spread_weights(inference);
  Text text;
  std::span<const float> logits = generation.read_prompt(inference, begin);
  for (int64_t i = 0; i < s.num_tokens; ++i) {
    text.logits.insert(text.logits.end(), logits.begin(), logits.end());
    text.tokens.push_back(choose_token(logits, s.sampling, static_cast<uint64_t>(i)));
    if (i + 1 < s.num_tokens) logits = generation.read_token(inference, text.tokens.back());
    text.loaded_bytes = inference.loaded_bytes();
  }
  return text;
}

/// Generates without a cache: each token needs a run over all tokens before.
Text recompute(const ModelConfig& config, DType dtype, int64_t num_tokens) {
  std::vector<int32_t> tokens = prompt();
  Text text;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const auto length = static_cast<int64_t>(tokens.size());
    const auto model = create_model(config, {.length = length}, dtype);
    const ForwardSpec pass{
        .model = model.get(), .loss = false, .logits_rows = 1, .num_classes = kVocabulary};
    const PreparedInference prepared =
        prepare_inference({&pass, 1}, options_of(dtype), {.device = {.num_threads = 1}});
    const auto device = create_device({.profile = {.num_threads = 1}});
    Inference inference(*device, prepared);
    spread_weights(inference);
    std::vector<int32_t> positions(tokens.size()), targets(tokens.size(), -100);
    for (size_t p = 0; p < tokens.size(); ++p) positions[p] = static_cast<int32_t>(p);
    const auto view = [&](std::vector<int32_t>& v) {
      return Tensor{reinterpret_cast<std::byte*>(v.data()), DType::I32, {1, length}};
    };
    inference.run(0, {.inputs = {view(tokens), view(positions), view(targets)}});
    std::vector<float> logits(kVocabulary);
    inference.read_logits(0, logits);
    text.logits.insert(text.logits.end(), logits.begin(), logits.end());
    text.tokens.push_back(choose_token(logits, {}, 0));
    tokens.push_back(text.tokens.back());
  }
  return text;
}

TEST_P(GenerationTest, EqualsRunsOverTheWholeText) {
  const Text text = generate(config(), dtype());
  EXPECT_EQ(text, recompute(config(), dtype(), 12));
  const std::set<int32_t> different(text.tokens.begin(), text.tokens.end());
  EXPECT_GT(different.size(), 3u) << "the text repeats itself";
}

TEST_P(GenerationTest, IsTheSameWithTheSmallestBudgetAndInPieces) {
  const Text want = generate(config(), dtype());
  const Text tight =
      generate(config(), dtype(), {.smallest_budget = true, .part_length = 5, .num_threads = 2});
  EXPECT_EQ(tight, want);
  EXPECT_EQ(want.loaded_bytes, 0u);
  EXPECT_GT(tight.loaded_bytes, 0u);
  EXPECT_EQ(generate(config(), dtype(), {.part_length = 1}), want);
}

/// The logits after a prompt, with the cache of an earlier one, and with an empty cache.
TEST_P(GenerationTest, AChangedPromptHasTheLogitsOfANewText) {
  Generation generation(config(), {.prompt_length = 40, .max_tokens = 8, .part_length = 7},
                        dtype());
  const PreparedInference prepared =
      prepare_inference(generation.passes(), options_of(dtype()), {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  Inference inference(*device, prepared);
  spread_weights(inference);
  const auto logits_of = [&](const std::vector<int32_t>& tokens, bool is_new) {
    const auto logits = is_new ? generation.read_prompt(inference, tokens)
                               : generation.read_changed_prompt(inference, tokens);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto first = logits_of(prompt(), true);
  for (const int32_t token : {0, 3, 6}) generation.read_token(inference, token);
  std::vector<int32_t> longer = prompt(), other = prompt(), shorter = {5, 6, 7};
  longer.insert(longer.end(), {0, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  other[2] = 1;
  for (const auto& tokens : {longer, prompt(), other, shorter, longer}) {
    const auto changed = logits_of(tokens, false);
    EXPECT_EQ(changed, logits_of(tokens, true)) << tokens.size();
    logits_of(longer, true);
  }
  EXPECT_EQ(logits_of(prompt(), false), first);
}

TEST(Generation, ALongerTextStartsWithTheShorterOne) {
  const Text shorter = generate(llama(), DType::BF16, {.num_tokens = 4});
  const Text longer = generate(llama(), DType::BF16, {.num_tokens = 9});
  EXPECT_TRUE(std::equal(shorter.tokens.begin(), shorter.tokens.end(), longer.tokens.begin()));
}

TEST(Generation, SampledTextsDependOnTheSeed) {
  const auto sampled = [](uint64_t seed, bool tight) {
    return generate(llama(), DType::BF16,
                    {.smallest_budget = tight, .sampling = {.temperature = 2, .seed = seed}})
        .tokens;
  };
  EXPECT_EQ(sampled(1, false), sampled(1, true));
  EXPECT_NE(sampled(1, false), sampled(2, false));
}

TEST(Generation, InvalidLengthsAreRejected) {
  EXPECT_THROW(Generation(llama(), {.prompt_length = 90, .max_tokens = 7}, DType::F32),
               ConfigError);
  EXPECT_NO_THROW(Generation(llama(), {.prompt_length = 90, .max_tokens = 6}, DType::F32));
  EXPECT_THROW(Generation(llama(), {.prompt_length = 0}, DType::F32), ConfigError);
  EXPECT_THROW(Generation(BertConfig{}, {}, DType::F32), ConfigError);
}

// ---- Choosing -----------------------------------------------------------------------------------

std::map<int32_t, double> shares(const std::vector<float>& logits, const Sampling& sampling) {
  constexpr uint64_t kDraws = 20'000;
  std::map<int32_t, double> result;
  for (uint64_t i = 0; i < kDraws; ++i) result[choose_token(logits, sampling, i)] += 1.0 / kDraws;
  return result;
}

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

TEST(ChooseToken, WithoutTemperatureTheFirstLargestLogitIsChosen) {
  EXPECT_EQ(choose_token(std::vector<float>{1, 3, 3, 2}, {}, 0), 1);
  EXPECT_EQ(choose_token(kLogits, {.seed = 9}, 7), 1);
  EXPECT_THROW(choose_token(std::vector<float>{1, NAN}, {}, 0), NumericError);
  EXPECT_THROW(choose_token(std::vector<float>{1, INFINITY}, {}, 0), NumericError);
  EXPECT_EQ(choose_token(std::vector<float>{1, -INFINITY}, {}, 0), 0);
}

TEST(ChooseToken, DrawsWithTheProbabilitiesOfTheLogits) {
  const auto plain = shares(kLogits, {.temperature = 1});
  const double want[] = {0.1, 0.4, 0.2, 0.3};
  for (int32_t t = 0; t < 4; ++t) EXPECT_NEAR(plain.at(t), want[t], 0.015) << t;
  const auto cold = shares(
      kLogits, {.temperature = 0.5});  // the squares of the probabilities are 1, 16, 4 and 9 of 30
  EXPECT_NEAR(cold.at(1), 16.0 / 30, 0.015);
}

TEST(ChooseToken, TopKAndTopPExcludeUnlikelyTokens) {
  const auto two = shares(kLogits, {.temperature = 1, .top_k = 2});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 4.0 / 7, 0.015);
  EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_p = 0.71}).size(), 3u);
  EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_p = 0.69}).size(), 2u);
  EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_p = 1e-9}).size(), 1u);
  EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.5}).size(), 2u);
}

}  // namespace
}  // namespace ebb::test
