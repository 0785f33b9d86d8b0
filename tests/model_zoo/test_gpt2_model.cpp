// GPT-2 as a model: size, initial weights, evaluation and invalid configurations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "model_zoo/presets.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test::tests_of_gpt2_model {
namespace {

constexpr size_t kSmallChunk = 256 << 10;

// ---- Size ---------------------------------------------------------------------------------------

TEST(Sizes, NumParametersIsTheSumOfTheShapesOfEachPreset) {
  for (const Preset& preset : presets()) {
    const auto model = create_model(preset.config, MicroBatchShape{}, DType::BF16);
    uint64_t sum = 0;
    for (const Parameter& p : model->parameters()) {
      sum += static_cast<uint64_t>(p.shape.num_elements());
    }
    EXPECT_EQ(num_parameters(preset.config), sum) << preset.name;
  }
}

TEST(Gpt2Size, Gpt2SmallHas124Million) {
  EXPECT_EQ(num_parameters(find_preset("gpt2").config), 124'439'808u);
  EXPECT_EQ(num_parameters(find_preset("gpt2-xl").config), 1'557'611'200u);
}

TEST(Gpt2Size, TheErrorOfAnUnknownPresetListsThePresets) {
  try {
    find_preset("gpt5");
    FAIL() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("gpt5"), std::string::npos) << e.what();
    for (const Preset& preset : presets()) {
      EXPECT_NE(std::string(e.what()).find(preset.name), std::string::npos) << e.what();
    }
  }
}

// ---- Initial weights ----------------------------------------------------------------------------

struct Fresh {
  std::vector<std::vector<float>> parameters;  // by id
  uint64_t state_hash;
};

constexpr Gpt2Config kToy{
    .vocabulary = 300, .max_positions = 96, .channels = 96, .num_layers = 3, .num_heads = 4};

Fresh fresh_weights(uint64_t seed, size_t chunk_bytes, DType dtype = DType::F32,
                    int num_threads = 1) {
  const Gpt2 model(kToy, 1, 8, dtype);
  const Preparation prepared =
      prepare(model, {.dtype = dtype, .chunk_bytes = chunk_bytes, .seed = seed},
              {.device = {.num_threads = num_threads}});
  const auto device = create_device({.profile = {.num_threads = num_threads}});
  Trainer trainer(model, *device, prepared);
  Fresh fresh{.parameters = {}, .state_hash = trainer.state_hash()};
  for (const Parameter& p : model.parameters()) {
    fresh.parameters.push_back(trainer.read_parameter(p.name));
  }
  return fresh;
}

double expected_deviation(const Parameter& p) {
  const bool residual = p.name.ends_with("c_proj.weight");
  return residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(kToy.num_layers)) : 0.02;
}

/// Checks the mean, the deviation and the share within one deviation, each to five standard errors.
void expect_normal(const std::vector<float>& values, double deviation, const std::string& name) {
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0, inside = 0;
  for (const float value : values) {
    const double x = static_cast<double>(value);
    sum += x;
    squares += x * x;
    inside += std::abs(x) < deviation ? 1 : 0;
  }
  EXPECT_NEAR(sum / n, 0, 5 * deviation / std::sqrt(n)) << name;
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 5 * deviation / std::sqrt(2 * n)) << name;
  const double share = std::erf(1 / std::sqrt(2.0));
  EXPECT_NEAR(inside / n, share, 5 * std::sqrt(share * (1 - share) / n)) << name;
}

TEST(Gpt2Initialisation, HasTheDistributionsOfGpt2) {
  const Gpt2 model(kToy, 1, 8, DType::F32);
  const Fresh fresh = fresh_weights(1, kSmallChunk);
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    const Parameter& p = model.parameters()[id];
    const std::vector<float>& values = fresh.parameters[id];
    if (p.shape.rank() == 2) {
      expect_normal(values, expected_deviation(p), p.name);
    } else {
      const float constant = p.name.ends_with("weight") ? 1.0f : 0.0f;
      EXPECT_EQ(values, std::vector<float>(values.size(), constant)) << p.name;
    }
  }
}

TEST(Gpt2Initialisation, NoTwoMatricesHaveTheSameNumbers) {
  const Gpt2 model(kToy, 1, 8, DType::F32);
  const Fresh fresh = fresh_weights(1, kSmallChunk);
  std::set<int64_t> seen;
  size_t num_matrices = 0;
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    const Parameter& p = model.parameters()[id];
    if (p.shape.rank() != 2) continue;
    ++num_matrices;
    const double first = static_cast<double>(fresh.parameters[id][0]) / expected_deviation(p);
    seen.insert(std::llround(first * 1e4));  // rounded, because the deviations of matrices differ
  }
  EXPECT_EQ(seen.size(), num_matrices);
}

TEST(Gpt2Initialisation, DependsOnlyOnTheSeed) {
  const Fresh one = fresh_weights(1, kSmallChunk);
  const Fresh other_layout = fresh_weights(1, 4 * kSmallChunk, DType::F32, 2);
  EXPECT_EQ(one.parameters, other_layout.parameters);
  EXPECT_EQ(one.state_hash, other_layout.state_hash);
  EXPECT_EQ(one.parameters, fresh_weights(1, kSmallChunk, DType::BF16).parameters);

  const Gpt2 model(kToy, 1, 8, DType::F32);
  const Fresh other_seed = fresh_weights(2, kSmallChunk);
  EXPECT_NE(one.state_hash, other_seed.state_hash);
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    const bool same = one.parameters[id] == other_seed.parameters[id];
    EXPECT_EQ(same, model.parameters()[id].shape.rank() < 2) << model.parameters()[id].name;
  }
}

// ---- Evaluation ---------------------------------------------------------------------------------

class Gpt2Evaluation : public testing::TestWithParam<DType> {};

TEST_P(Gpt2Evaluation, EqualsTheLossOfAStepWithTheSameWeights) {
  const ReferenceRun reference = load_reference("wide");
  const auto owned = create_model(reference, GetParam());
  const Model& model = *owned;
  TrainerOptions options = reference.options;
  options.dtype = GetParam();
  options.chunk_bytes = kSmallChunk;
  options.evaluation_batches = options.gradient_accumulation;
  const size_t smallest =
      prepare(model, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
  const Preparation prepared =
      prepare(model, options, {.device_memory = smallest, .device = {.num_threads = 1}});
  const auto device =
      create_device({.profile = {.num_threads = 1}, .memory_bytes = smallest, .poison = true});
  Trainer trainer(model, *device, prepared);
  for (size_t s = 0; s < 3; ++s) {
    const auto batches = micro_batches_of(reference, reference.steps[s]);
    const uint64_t before = trainer.state_hash();
    const double evaluated = trainer.evaluate(batches);
    EXPECT_EQ(trainer.state_hash(), before) << "the evaluation changed the state";
    EXPECT_EQ(evaluated, trainer.evaluate(batches));
    EXPECT_EQ(evaluated, trainer.step(batches, 1e-3).loss) << "step " << s;
    EXPECT_NE(evaluated, trainer.evaluate(batches)) << "the step changed nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Gpt2Evaluation, testing::Values(DType::F32, DType::BF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// ---- Invalid configurations ---------------------------------------------------------------------

struct Refusal {
  const char* name;
  Gpt2Config config = kToy;
  int64_t batch = 2, length = 8;
  std::vector<std::string> numbers = {};
};

Gpt2Config toy_with(int64_t Gpt2Config::*field, int64_t value) {
  Gpt2Config config = kToy;
  config.*field = value;
  return config;
}

TEST(Gpt2Configuration, InvalidOnesAreRejectedWithTheirNumbers) {
  const Refusal refusals[] = {
      {.name = "heads",
       .config = toy_with(&Gpt2Config::num_heads, 7),
       .numbers = {"7 heads", "96 channels"}},
      {.name = "length", .length = 97, .numbers = {"97", "96 positions", "`seq_length` 96"}},
      {.name = "vocabulary",
       .config = toy_with(&Gpt2Config::vocabulary, 0),
       .numbers = {"vocabulary", "0"}},
      {.name = "positions",
       .config = toy_with(&Gpt2Config::max_positions, 0),
       .numbers = {"positions", "0"}},
      {.name = "channels",
       .config = toy_with(&Gpt2Config::channels, -4),
       .numbers = {"channels", "-4"}},
      {.name = "layers",
       .config = toy_with(&Gpt2Config::num_layers, 0),
       .numbers = {"layers", "0"}},
      {.name = "no heads",
       .config = toy_with(&Gpt2Config::num_heads, 0),
       .numbers = {"heads", "0"}},
      {.name = "batch", .batch = 0, .numbers = {"micro-batch", "0"}},
      {.name = "no length", .length = -1, .numbers = {"length", "-1"}},
  };
  for (const Refusal& r : refusals) {
    try {
      const Gpt2 model(r.config, r.batch, r.length, DType::F32);
      ADD_FAILURE() << r.name << ": accepted";
    } catch (const ConfigError& e) {
      for (const std::string& part : r.numbers) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    }
  }
  EXPECT_NO_THROW(Gpt2(kToy, 1, 96, DType::F32));
}

}  // namespace
}  // namespace ebb::test::tests_of_gpt2_model
