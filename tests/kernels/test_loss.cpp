#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

struct Size {
  int64_t n, classes;
};
const Size kSizes[] = {{1, 1}, {3, 2}, {5, 15}, {9, 16}, {7, 17}, {33, 257}, {3, 5003}};

class CrossEntropy : public testing::TestWithParam<std::tuple<DType, Size>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropy,
                         testing::Combine(testing::Values(DType::F32, DType::BF16),
                                          testing::ValuesIn(kSizes)),
                         ([](const auto& info) {
                           const auto& [dtype, s] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(s.n) + "_" +
                                  std::to_string(s.classes);
                         }));

TEST_P(CrossEntropy, LossesAndGradient) {
  const auto [dtype, s] = GetParam();
  for (double range : {1.0, 80.0, 1e4}) {
    Harness h;
    auto targets = random_indices(s.n, s.classes, 1);
    if (s.n > 2) targets[1] = -100;
    const Array logits = random_array(dtype, {s.n, s.classes}, 2, range);
    const Array losses(DType::F32, {s.n}), again(DType::F32, {s.n}),
        target_array = int_array(targets);
    const double scale = 0.125;
    const Loss want = cross_entropy(logits.values(), targets, s.classes, scale);
    const Values untouched = logits.values();
    h.kernels->cross_entropy(h.stream, losses, logits, target_array, std::nullopt);
    EXPECT_EQ(logits.values(), untouched);
    Values loss_scale = absolute(want.losses);
    for (double& v : loss_scale) v += 1;
    EXPECT_TRUE(close(losses.values(), want.losses, loss_scale, 5e-7, DType::F32)) << range;
    h.kernels->cross_entropy(h.stream, again, logits, target_array, static_cast<float>(scale));
    EXPECT_EQ(again.values(), losses.values());
    // The exponent's argument is rounded once: its error is relative to the range of the logits. At
    // the target, one is taken from the probability.
    Values gradient_scale = absolute(want.gradient);
    for (double& v : gradient_scale) v = v * (1 + range / 10) + 1e-30;  // below 1e-36: flushed
    for (int64_t i = 0; i < s.n; ++i) {
      const int32_t target = targets[static_cast<size_t>(i)];
      if (target >= 0) gradient_scale[static_cast<size_t>(i * s.classes + target)] += 0.2 * scale;
    }
    EXPECT_TRUE(close(logits.values(), want.gradient, gradient_scale, 1e-6, dtype)) << range;
  }
}

TEST(CrossEntropy, GradientIsTheSlopeOfTheLoss) {
  constexpr int64_t n = 5, classes = 37;
  Harness h;
  const Values x = random_values(n * classes, 1, 2.0);
  const std::vector<int32_t> targets = {3, -100, 36, 0, 17};
  const Loss reference = cross_entropy(x, targets, classes, 1.0);
  const Values ones(n, 1.0);
  EXPECT_TRUE(differentiates(
      [&](const Values& v) { return cross_entropy(v, targets, classes, 1.0).losses; }, ones, x,
      reference.gradient, 1e-5, 1e-8));
  const Array target_array = int_array(targets);
  const auto forward = [&](const Values& v) {
    const Array losses(DType::F32, {n});
    h.kernels->cross_entropy(h.stream, losses, Array(DType::F32, {n, classes}, v), target_array,
                             {});
    return losses.values();
  };
  const Array logits(DType::F32, {n, classes}, x), losses(DType::F32, {n});
  h.kernels->cross_entropy(h.stream, losses, logits, target_array, 1.0f);
  EXPECT_TRUE(differentiates(forward, ones, x, logits.values(), 1e-2, 1e-3));
  Values no_onehot = logits.values();
  no_onehot[3] += 1;
  EXPECT_FALSE(differentiates(forward, ones, x, no_onehot, 1e-2, 1e-3));
}

TEST(CrossEntropy, NotANumberIsSeen) {
  Harness h;
  Values x = random_values(2 * 40, 1);
  x[39] = std::nan("");
  const Array losses(DType::F32, {2});
  const Array logits(DType::F32, {2, 40}, x);
  h.kernels->cross_entropy(h.stream, losses, logits, int_array({5, 6}), 1.0f);
  EXPECT_TRUE(std::isnan(losses.values()[0]));
  EXPECT_TRUE(std::isfinite(losses.values()[1]));
  EXPECT_TRUE(std::isnan(logits.values()[0]));
}

TEST(CrossEntropy, TargetsOutsideTheClassesAreErrors) {
  Harness h;
  const Array losses(DType::F32, {2}), logits = random_array(DType::F32, {2, 10}, 1);
  for (int32_t bad : {-1, 10, -101}) {
    EXPECT_THROW(h.kernels->cross_entropy(h.stream, losses, logits, int_array({1, bad}), {}),
                 LogicError);
  }
}

TEST(Sum, IsTheSumInFp64) {
  Harness h;
  for (int64_t n : {1, 63, 64, 65, 1009}) {
    const Array values = random_array(DType::F32, {n}, 1), total(DType::F64, {1});
    h.kernels->sum(h.stream, total, values, Write::Store);
    double want = 0, size = 0;
    for (double v : values.values()) want += v, size += std::abs(v);
    EXPECT_NEAR(total.values()[0], want, size * 1e-15);
    h.kernels->sum(h.stream, total, values, Write::Add);
    EXPECT_NEAR(total.values()[0], 2 * want, size * 2e-15);
  }
}

}  // namespace
}  // namespace ebb::test
