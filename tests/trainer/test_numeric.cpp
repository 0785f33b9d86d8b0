// Gradients that are not finite. With clipping the step is skipped and counted; without clipping an
// error names the tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model_zoo/mlp.h"
#include "tests/error_of.h"
#include "tests/trainer/cases.h"

namespace ebb::test::tests_of_numeric {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kLearningRate = 1e-3;

/// A small GPT at the smallest budget, where all chunks move.
struct Gpt {
  explicit Gpt(bool clip, uint32_t max_skipped_steps = 3) {
    run.clip = clip;
    TrainerOptions options = run.options();
    options.max_skipped_steps = max_skipped_steps;
    const Preparation resident = prepare(model, options, {.device = {.num_threads = 1}});
    prepared =
        prepare(model, options,
                {.device_memory = resident.smallest_device_bytes, .device = {.num_threads = 1}});
    device = create_case_device(prepared, run);
    trainer = std::make_unique<Trainer>(model, *device, prepared);
  }
  StepResult step(uint64_t seed) {
    const Data data(tiny_gpt(), 8, 1, seed);
    return trainer->step(data.micro_batches(), kLearningRate);
  }
  std::vector<float> spoil(std::string_view name, float with) {
    const std::vector<float> good = trainer->read_parameter(name);
    std::vector<float> bad = good;
    bad[bad.size() / 2] = with;
    trainer->write_parameter(name, bad);
    return good;
  }

  TrainingCase run{.memory = Memory::Smallest};
  Gpt2 model{tiny_gpt(), kMicroBatchSize, 8, DType::BF16};
  Preparation prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;
};

constexpr std::string_view kSpoiled = "h.0.mlp.c_fc.weight";

class SkippedStep : public testing::TestWithParam<float> {};

TEST_P(SkippedStep, ChangesNothing) {
  Gpt gpt(true);
  gpt.step(1);
  gpt.spoil(kSpoiled, GetParam());
  const uint64_t before = gpt.trainer->state_hash();
  const StepResult r = gpt.step(2);
  EXPECT_TRUE(r.skipped);
  EXPECT_FALSE(std::isfinite(r.grad_norm));
  EXPECT_EQ(gpt.trainer->state_hash(), before);
  EXPECT_EQ(gpt.trainer->num_updates(), 1);
  EXPECT_EQ(gpt.trainer->num_skipped(), 1u);
}

TEST_P(SkippedStep, DoesNotAffectLaterSteps) {
  Gpt with(true), without(true);
  with.step(1);
  without.step(1);
  const std::vector<float> good = with.spoil(kSpoiled, GetParam());
  EXPECT_TRUE(with.step(2).skipped);
  with.trainer->write_parameter(kSpoiled, good);
  const StepResult a = with.step(3), b = without.step(3);
  EXPECT_FALSE(a.skipped);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(with.trainer->state_hash(), without.trainer->state_hash());
  EXPECT_EQ(with.trainer->num_updates(), 2);
}

INSTANTIATE_TEST_SUITE_P(Values, SkippedStep, testing::Values(kInf, -kInf, kNan));

TEST(Numeric, AGoodStepResetsTheCountOfBadSteps) {
  Gpt gpt(true, 2);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> good = gpt.spoil(kSpoiled, kNan);
    EXPECT_TRUE(gpt.step(1).skipped);
    gpt.trainer->write_parameter(kSpoiled, good);
    EXPECT_FALSE(gpt.step(1).skipped);
  }
  EXPECT_EQ(gpt.trainer->num_skipped(), 3u);
  EXPECT_EQ(gpt.trainer->num_updates(), 3);
}

/// Only the gradient of the second layer's weight overflows. The inputs of that layer are 2e38 and
/// its weights are 0, so the logits and the gradient of its input stay finite. The sum over the
/// rows does not: num_targets is 1, so the gradients are not divided by the number of rows.
struct OverflowingMlp {
  static constexpr int64_t kRows = 8, kFeatures = 4, kHidden = 4, kClasses = 4;

  explicit OverflowingMlp(float max_grad_norm) {
    const TrainerOptions options{
        .dtype = DType::F32, .chunk_bytes = size_t{1} << 20, .max_grad_norm = max_grad_norm};
    prepared = prepare(model, options, {.device = {.num_threads = 1}});
    device = create_device(
        {.profile = {.num_threads = 1}, .memory_bytes = prepared.ledger.total(Tier::Device)});
    trainer = std::make_unique<Trainer>(model, *device, prepared);
    trainer->write_parameter("layers.0.weight", std::vector<float>(kHidden * kFeatures, 0.5e38f));
    trainer->write_parameter("layers.1.weight", std::vector<float>(kClasses * kHidden, 0.0f));
  }
  StepResult step() {
    std::vector<float> x(kRows * kFeatures, 1.0f);
    std::vector<int32_t> labels(kRows, 1);
    MicroBatch batch;
    batch.inputs = {{reinterpret_cast<std::byte*>(x.data()), DType::F32, {kRows, kFeatures}},
                    {reinterpret_cast<std::byte*>(labels.data()), DType::I32, {kRows}}};
    batch.num_targets = 1;
    return trainer->step({&batch, 1}, kLearningRate);
  }

  Mlp model{{kFeatures, kHidden, kClasses}, kRows, DType::F32};
  Preparation prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;
};

TEST(Numeric, ThreeBadStepsInARowNameTheFirstBadTensor) {
  OverflowingMlp mlp(1);
  const uint64_t before = mlp.trainer->state_hash();
  EXPECT_TRUE(mlp.step().skipped);
  EXPECT_TRUE(mlp.step().skipped);
  const auto error = error_of<NumericError>([&] { mlp.step(); });
  EXPECT_SAYS(error, "3 steps in a row");
  EXPECT_SAYS(error, "layers.1.weight");
  EXPECT_EQ(mlp.trainer->state_hash(), before);
}

TEST(Numeric, WithoutClippingTheFirstBadStepNamesTheTensor) {
  OverflowingMlp mlp(0);
  EXPECT_SAYS(error_of<NumericError>([&] { mlp.step(); }), "layers.1.weight");
}

TEST(Numeric, WithoutClippingABadStepOfAGptIsAnError) {
  Gpt gpt(false);
  gpt.step(1);
  gpt.spoil(kSpoiled, kInf);
  EXPECT_SAYS(error_of<NumericError>([&] { gpt.step(2); }), "is not a number");
  EXPECT_THROW((void)gpt.trainer->state_hash(), LogicError);
  EXPECT_THROW((void)gpt.trainer->lock_state(), LogicError);
}

TEST(Numeric, AStepWithoutTargetsIsAnError) {
  Gpt gpt(true);
  Data data(tiny_gpt(), 8, 1, 1);
  std::vector<MicroBatch> batches = data.micro_batches();
  batches[0].num_targets = 0;
  EXPECT_THROW(gpt.trainer->step(batches, kLearningRate), NumericError);
}

}  // namespace
}  // namespace ebb::test::tests_of_numeric
