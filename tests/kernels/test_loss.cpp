#include <cmath>
#include <limits>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_loss {
namespace {

struct Size {
  int64_t n, classes;
};

/// Scales for the comparisons below. The argument of the exponential is rounded once, so its error
/// is relative to the range of the logits. The loss and the gradient at the target add a term of
/// one.
Values scale_of_losses(const Loss& want) {
  Values scale = absolute(want.losses);
  for (double& v : scale) v += 1;
  return scale;
}
Values scale_of_gradient(const Loss& want, const std::vector<int32_t>& targets, int64_t classes,
                         double range, double gradient_scale) {
  Values scale = absolute(want.gradient);
  for (double& v : scale) v = v * (1 + range / 10) + 1e-30;  // values below 1e-36 may be flushed
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    scale[i * static_cast<size_t>(classes) + static_cast<size_t>(targets[i])] +=
        0.2 * gradient_scale;
  }
  return scale;
}
const Size kSizes[] = {{1, 1}, {3, 2}, {5, 15}, {9, 16}, {7, 17}, {33, 257}, {3, 5003}, {3, 8200}};

class CrossEntropy : public testing::TestWithParam<std::tuple<DType, Size>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropy,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
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
    h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, target_array, std::nullopt});
    EXPECT_EQ(logits.values(), untouched);
    EXPECT_TRUE(close(losses.values(), want.losses, scale_of_losses(want), 5e-7, DType::F32))
        << range;
    h.kernels->submit(h.stream,
                      ebb::CrossEntropy{again, logits, target_array, static_cast<float>(scale)});
    EXPECT_EQ(again.values(), losses.values());
    EXPECT_TRUE(close(logits.values(), want.gradient,
                      scale_of_gradient(want, targets, s.classes, range, scale), 1e-6, dtype))
        << range;
  }
}

TEST(CrossEntropy, GradientIsTheDerivativeOfTheLoss) {
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
    h.kernels->submit(
        h.stream, ebb::CrossEntropy{losses, Array(DType::F32, {n, classes}, v), target_array, {}});
    return losses.values();
  };
  const Array logits(DType::F32, {n, classes}, x), losses(DType::F32, {n});
  h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, target_array, 1.0f});
  EXPECT_TRUE(differentiates(forward, ones, x, logits.values(), 1e-2, 1e-3));
  Values no_onehot = logits.values();
  no_onehot[3] += 1;
  EXPECT_FALSE(differentiates(forward, ones, x, no_onehot, 1e-2, 1e-3));
}

TEST(CrossEntropy, NanStaysInItsRow) {
  Harness h;
  Values x = random_values(2 * 40, 1);
  x[39] = std::nan("");
  const Array losses(DType::F32, {2});
  const Array logits(DType::F32, {2, 40}, x);
  h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, int_array({5, 6}), 1.0f});
  EXPECT_TRUE(std::isnan(losses.values()[0]));
  EXPECT_TRUE(std::isfinite(losses.values()[1]));
  EXPECT_TRUE(std::isnan(logits.values()[0]));
}

/// As an overflow to fp16 makes. 16 logits are read in groups, 17 one by one.
TEST(CrossEntropy, AClassWithTheLogitMinusInfinityHasTheProbabilityZero) {
  for (const int64_t classes : {16, 17}) {
    Harness h;
    Values x(static_cast<size_t>(classes), -std::numeric_limits<double>::infinity());
    x[3] = x[static_cast<size_t>(classes) - 1] = 1.5;
    const Array losses(DType::F32, {1}), logits(DType::F32, {1, classes}, x);
    h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, int_array({3}), 1.0f});
    EXPECT_NEAR(losses.values()[0], std::log(2.0), 1e-6);
    const Values gradient = logits.values();
    EXPECT_NEAR(gradient[3], -0.5, 1e-6);
    EXPECT_NEAR(gradient[static_cast<size_t>(classes) - 1], 0.5, 1e-6);
    EXPECT_EQ(gradient[0], 0);
  }
}

TEST(CrossEntropy, TargetsOutsideTheClassesAreErrors) {
  Harness h;
  const Array losses(DType::F32, {2}), logits = random_array(DType::F32, {2, 10}, 1);
  for (int32_t bad : {-1, 10, -101}) {
    EXPECT_THROW(
        h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, int_array({1, bad}), {}}),
        LogicError);
  }
}

// ---- In slices of classes ----------------------------------------------------------------------

/// Logits that are split into slices of classes. Each slice is an array.
struct Slices {
  Slices(const Array& logits, int64_t width) {
    const Values all = logits.values();
    const int64_t n = logits.tensor().rows(), classes = logits.tensor().columns();
    arrays.reserve(static_cast<size_t>(classes / width + 1));
    for (int64_t first = 0; first < classes; first += width) {
      const int64_t count = std::min(width, classes - first);
      Values values;
      for (int64_t row = 0; row < n; ++row) {
        const auto at = all.begin() + row * classes + first;
        values.insert(values.end(), at, at + count);
      }
      slices.push_back({first, count, classes});
      arrays.emplace_back(logits.tensor().dtype, Shape{n, count}, values);
    }
  }
  /// Put together again.
  Values values() const {
    const int64_t n = arrays[0].tensor().rows(), classes = slices[0].num_classes;
    Values all(static_cast<size_t>(n * classes));
    for (size_t s = 0; s < arrays.size(); ++s) {
      const Values part = arrays[s].values();
      const int64_t width = arrays[s].tensor().columns();
      for (int64_t row = 0; row < n; ++row) {
        std::copy_n(part.begin() + row * width, width,
                    all.begin() + row * classes + slices[s].first);
      }
    }
    return all;
  }

  std::vector<std::vector<std::byte>> raw() const {
    std::vector<std::vector<std::byte>> all;
    for (const Array& array : arrays) all.push_back(array.raw());
    return all;
  }

  std::vector<ClassSlice> slices;
  std::vector<Array> arrays;
};

struct SlicedLoss {
  Values losses, gradient;
};

/// With `in_order` false the first slice replaces the middle ones, which the contract forbids.
SlicedLoss sliced_loss(Harness& h, const Array& logits, const Array& targets, int64_t width,
                       float scale, bool in_order = true) {
  const int64_t n = logits.tensor().rows();
  const Array losses(DType::F32, {n}), statistics(DType::F32, {n, 3});
  const Slices cut(logits, width);
  const size_t count = cut.arrays.size();
  const auto untouched = cut.raw();
  for (size_t i = 0; i < count; ++i) {
    const size_t s = in_order || i == 0 || i + 1 == count ? i : 0;
    h.kernels->submit(h.stream, CrossEntropyStatistics{losses, statistics, cut.arrays[s], targets,
                                                       cut.slices[s]});
  }
  EXPECT_TRUE(cut.raw() == untouched);
  for (size_t s = count; s-- > 0;) {
    h.kernels->submit(
        h.stream, CrossEntropyGradient{cut.arrays[s], statistics, targets, cut.slices[s], scale});
  }
  return {losses.values(), cut.values()};
}

// With ThreadSanitizer and the emulated GPU, 257 slices take 40 s.
#if defined(__SANITIZE_THREAD__)
constexpr int64_t kMostSlices = 100;
#else
constexpr int64_t kMostSlices = 1000;
#endif

TEST_P(CrossEntropy, InSlicesOfClasses) {
  const auto [dtype, s] = GetParam();
  constexpr double scale = 0.125;
  for (double range : {1.0, 80.0, 1e4}) {
    Harness h;
    auto targets = random_indices(s.n, s.classes, 1);
    if (s.n > 2) targets[1] = -100;
    const Array logits = random_array(dtype, {s.n, s.classes}, 2, range);
    const Array target_array = int_array(targets);
    const Loss want = cross_entropy(logits.values(), targets, s.classes, scale);
    for (int64_t width : {s.classes / 2 + 1, s.classes / 5 + 1, int64_t{1}}) {
      if (s.classes / width > kMostSlices) continue;
      const SlicedLoss got = sliced_loss(h, logits, target_array, width, scale);
      EXPECT_TRUE(close(got.losses, want.losses, scale_of_losses(want), 1e-6, DType::F32))
          << range << ", " << width << " classes a slice";
      EXPECT_TRUE(close(got.gradient, want.gradient,
                        scale_of_gradient(want, targets, s.classes, range, scale), 2e-6, dtype))
          << range << ", " << width << " classes a slice";
    }
  }
}

TEST_P(CrossEntropy, OneSliceOfAllClassesHasTheSameBits) {
  const auto [dtype, s] = GetParam();
  Harness h;
  const Array targets = int_array(random_indices(s.n, s.classes, 1));
  const Array logits = random_array(dtype, {s.n, s.classes}, 2, 8.0), losses(DType::F32, {s.n});
  const SlicedLoss got = sliced_loss(h, logits, targets, s.classes, 0.125f);
  h.kernels->submit(h.stream, ebb::CrossEntropy{losses, logits, targets, 0.125f});
  EXPECT_EQ(got.losses, losses.values());
  EXPECT_EQ(got.gradient, logits.values());
}

/// The comparison above must find a slice that is missing and one that is used twice.
TEST(SlicedCrossEntropy, TheComparisonFindsAMissingSlice) {
  constexpr int64_t n = 5, classes = 40, width = 10;
  Harness h;
  const std::vector<int32_t> targets = {3, 39, 12, 25, 0};
  const Array logits = random_array(DType::F32, {n, classes}, 2, 2.0);
  const Loss want = cross_entropy(logits.values(), targets, classes, 1.0);
  const auto is_right = [&](const SlicedLoss& got) {
    return close(got.losses, want.losses, scale_of_losses(want), 1e-6, DType::F32) &&
           close(got.gradient, want.gradient, scale_of_gradient(want, targets, classes, 2, 1), 2e-6,
                 DType::F32);
  };
  EXPECT_TRUE(is_right(sliced_loss(h, logits, int_array(targets), width, 1.0f)));
  EXPECT_FALSE(is_right(sliced_loss(h, logits, int_array(targets), width, 1.0f, false)));
}

TEST(SlicedCrossEntropy, GradientIsTheDerivativeOfTheLoss) {
  constexpr int64_t n = 5, classes = 37, width = 16;
  Harness h;
  const Values x = random_values(n * classes, 1, 2.0), ones(n, 1.0);
  const Array targets = int_array({3, -100, 36, 0, 17});
  const auto run = [&](const Values& v) {
    return sliced_loss(h, Array(DType::F32, {n, classes}, v), targets, width, 1.0f);
  };
  const auto forward = [&](const Values& v) { return run(v).losses; };
  Values gradient = run(x).gradient;
  EXPECT_TRUE(differentiates(forward, ones, x, gradient, 1e-2, 1e-3));
  gradient[3] += 1;
  EXPECT_FALSE(differentiates(forward, ones, x, gradient, 1e-2, 1e-3));
}

TEST(SlicedCrossEntropy, NanStaysInItsRow) {
  Harness h;
  Values x = random_values(2 * 40, 1);
  x[25] = std::nan("");
  const SlicedLoss got = sliced_loss(h, Array(DType::F32, {2, 40}, x), int_array({5, 6}), 10, 1.0f);
  EXPECT_TRUE(std::isnan(got.losses[0]));
  EXPECT_TRUE(std::isfinite(got.losses[1]));
  EXPECT_TRUE(std::isnan(got.gradient[0]));
  EXPECT_TRUE(std::isfinite(got.gradient[40]));
}

TEST(SlicedCrossEntropy, TargetsOutsideAllClassesAreErrors) {
  Harness h;
  const Array logits = random_array(DType::F32, {2, 10}, 1);
  for (int32_t bad : {-1, 10, -101}) {
    EXPECT_THROW(sliced_loss(h, logits, int_array({1, bad}), 4, 1.0f), LogicError);
  }
}

TEST(Sum, IsTheSumInFp64) {
  Harness h;
  for (int64_t n : {1, 63, 64, 65, 1009}) {
    const Array values = random_array(DType::F32, {n}, 1), total(DType::F64, {1});
    h.kernels->submit(h.stream, Sum{total, values, Write::Store});
    const double want = column_sums(values.values(), n, 1)[0];
    const double size = column_sums(absolute(values.values()), n, 1)[0];
    EXPECT_NEAR(total.values()[0], want, size * 1e-15);
    h.kernels->submit(h.stream, Sum{total, values, Write::Add});
    EXPECT_NEAR(total.values()[0], 2 * want, size * 2e-15);
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_loss
