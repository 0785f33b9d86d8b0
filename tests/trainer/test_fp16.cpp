// fp16: the loss scale halves when a gradient overflows and doubles after many good steps; a step
// that overflows is skipped; the scale changes neither norms nor state.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model_zoo/mlp.h"
#include "tests/trainer/cases.h"

namespace ebb::test::tests_of_fp16 {
namespace {

constexpr double kLearningRate = 1e-3;

TEST(LossScale, DoublesAfterManyGoodStepsAndHalvesAtOnce) {
  LossScale scale = initial_loss_scale(DType::F16);
  EXPECT_EQ(scale.value, 65536u);
  for (int step = 1; step < 2000; ++step) scale = after_good_step(scale);
  EXPECT_EQ(scale.value, 65536u);
  const LossScale before = scale;
  scale = after_good_step(scale);
  EXPECT_EQ(scale, (LossScale{.value = 131072, .num_good_steps = 0}));
  // An overflow resets the count of good steps.
  scale = after_overflow(before);
  EXPECT_EQ(scale, (LossScale{.value = 32768, .num_good_steps = 0}));
  scale.value = kLargestLossScale;
  for (int step = 0; step < 4000; ++step) scale = after_good_step(scale);
  EXPECT_EQ(scale.value, kLargestLossScale);
  EXPECT_EQ(initial_loss_scale(DType::BF16).value, 1u);
  EXPECT_EQ(initial_loss_scale(DType::F32).value, 1u);
}

/// A small MLP with two micro-batches per step. The inputs of the second are scaled by a factor.
struct SmallMlp {
  static constexpr int64_t kRows = 8, kFeatures = 4, kHidden = 5, kClasses = 3;

  explicit SmallMlp(DType dtype, float max_grad_norm = 1)
      : model({kFeatures, kHidden, kClasses}, kRows, dtype) {
    prepared = prepare(model,
                       {.dtype = dtype,
                        .chunk_bytes = size_t{1} << 20,
                        .gradient_accumulation = 2,
                        .max_grad_norm = max_grad_norm},
                       {.device = {.num_threads = 1}});
    device = create_device(
        {.profile = {.num_threads = 1}, .memory_bytes = prepared.ledger.total(Tier::Device)});
    trainer = std::make_unique<Trainer>(model, *device, prepared);
    for (const Parameter& p : model.parameters()) {
      std::vector<float> values(static_cast<size_t>(p.shape.num_elements()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5) / 8;
      }
      trainer->write_parameter(p.name, values);
    }
  }

  /// Trains one step on rows of x that differ. All values of x are exact in fp16.
  template <class T>
  StepResult step_of(float factor) {
    std::vector<T> x[2];
    std::vector<int32_t> labels(kRows);
    for (int64_t i = 0; i < kRows; ++i)
      labels[static_cast<size_t>(i)] = static_cast<int32_t>(i % kClasses);
    std::vector<MicroBatch> batches(2);
    for (size_t k = 0; k < 2; ++k) {
      for (int64_t i = 0; i < kRows * kFeatures; ++i) {
        const auto value = static_cast<float>(i * 5 % 13 - 6) / 8;
        x[k].push_back(T(k == 0 ? value : value * factor));
      }
      batches[k].inputs = {
          {reinterpret_cast<std::byte*>(x[k].data()), dtype_of<T>(), {kRows, kFeatures}},
          {reinterpret_cast<std::byte*>(labels.data()), DType::I32, {kRows}}};
      batches[k].num_targets = kRows;
    }
    return trainer->step(batches, kLearningRate);
  }
  StepResult step(float factor) {
    return prepared.options.dtype == DType::F16 ? step_of<F16>(factor) : step_of<float>(factor);
  }

  Mlp model;
  Preparation prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;
};

class Fp16Steps : public testing::TestWithParam<float> {};  // max_grad_norm

TEST_P(Fp16Steps, AreSkippedAndHalveTheScaleIfAMicroBatchOverflows) {
  SmallMlp mlp(DType::F16, GetParam());
  EXPECT_FALSE(mlp.step(1).skipped);
  const uint64_t before = mlp.trainer->state_hash();
  uint32_t scale = 65536, num_skipped = 0;
  for (StepResult r = mlp.step(1024); r.skipped; r = mlp.step(1024)) {
    EXPECT_EQ(r.loss_scale, scale);
    EXPECT_FALSE(std::isfinite(r.grad_norm));
    EXPECT_TRUE(std::isfinite(r.loss)) << "the forward does not overflow";
    EXPECT_EQ(mlp.trainer->state_hash(), before);
    EXPECT_EQ(mlp.trainer->num_updates(), 1);
    EXPECT_EQ(mlp.trainer->num_skipped(), ++num_skipped);
    scale /= 2;
    ASSERT_GT(scale, 1u);
  }
  EXPECT_GE(num_skipped, 4u);  // more than a run without a loss scale allows
  EXPECT_EQ(mlp.trainer->num_updates(), 2);
  EXPECT_NE(mlp.trainer->state_hash(), before);
  EXPECT_EQ(mlp.step(1).loss_scale, scale);
}

/// The scale is a power of two, so dividing by it is exact: the bits are the same for any scale.
TEST_P(Fp16Steps, HaveTheSameBitsForAnyScale) {
  SmallMlp plain(DType::F16, GetParam()), hurt(DType::F16, GetParam());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(hurt.step(1024).skipped);
  for (int i = 0; i < 3; ++i) {
    const StepResult a = plain.step(1), b = hurt.step(1);
    EXPECT_EQ(a.loss_scale, 4 * b.loss_scale);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(plain.trainer->state_hash(), hurt.trainer->state_hash());
}

/// The reported norms do not contain the scale. They are those of fp32 up to rounding.
TEST_P(Fp16Steps, AgreeWithFp32) {
  SmallMlp half(DType::F16, GetParam()), whole(DType::F32, GetParam());
  for (int i = 0; i < 5; ++i) {
    const StepResult a = half.step(2), b = whole.step(2);
    EXPECT_NEAR(a.loss, b.loss, 2e-3 * b.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 5e-3 * b.grad_norm);
    EXPECT_GT(b.grad_norm, 0.1);
  }
  for (const Parameter& p : half.model.parameters()) {
    const std::vector<float> a = half.trainer->read_parameter(p.name);
    const std::vector<float> b = whole.trainer->read_parameter(p.name);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Clipping, Fp16Steps, testing::Values(0.0f, 0.05f),
                         [](const auto& info) { return info.param == 0 ? "off" : "bites"; });

TEST(Fp16, ThreeBadStepsAtTheSmallestScaleAreAnError) {
  SmallMlp mlp(DType::F16);
  const std::string name = mlp.model.parameters()[0].name;
  std::vector<float> weights = mlp.trainer->read_parameter(name);
  weights[1] = std::numeric_limits<float>::quiet_NaN();
  mlp.trainer->write_parameter(name, weights);
  for (int i = 0; i < 16 + 2; ++i) EXPECT_TRUE(mlp.step(1).skipped);
  EXPECT_THROW(mlp.step(1), NumericError);
}

TEST(Fp16, TakesFourteenBytesPerParameterInHostMemory) {
  for (const DType type : {DType::F16, DType::BF16}) {
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, type);
    const Preparation p = prepare_case(model, {.dtype = type});
    size_t bytes = 0;
    for (const std::string_view plane : {"weight", "low", "master", "momentum", "variance"}) {
      bytes += p.ledger.bytes(plane, Tier::Host);
    }
    EXPECT_EQ(bytes, (type == DType::F16 ? 14u : 12u) * p.layout->num_space_elements());
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_fp16
