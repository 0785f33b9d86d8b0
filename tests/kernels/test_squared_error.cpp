#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_squared_error {
namespace {

struct Size {
  int64_t n, c;
};
const Size kSizes[] = {{1, 1}, {3, 7}, {5, 16}, {40, 33}, {2, 1032}, {2, 4099}};

class MeanSquaredErrorTest : public testing::TestWithParam<std::tuple<DType, DType, Size>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, MeanSquaredErrorTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes)),
                         ([](const auto& info) {
                           const auto& [dtype, targets, s] = info.param;
                           return std::string(name_of(dtype)) + "_" +
                                  std::string(name_of(targets)) + "_" + std::to_string(s.n) + "_" +
                                  std::to_string(s.c);
                         }));

TEST_P(MeanSquaredErrorTest, LossesAndGradient) {
  const auto [dtype, target_type, s] = GetParam();
  constexpr double kScale = 0.125;
  for (const Write write : {Write::Store, Write::Add}) {
    Harness h;
    const Array x = random_array(dtype, {s.n, s.c}, 1, 3.0);
    const Array targets = random_array(target_type, {s.n, s.c}, 2, 3.0);
    const Array dx = random_array(dtype, {s.n, s.c}, 3);
    const Array losses(DType::F32, {s.n}), alone(DType::F32, {s.n});
    const Values before = write == Write::Add ? dx.values() : Values(dx.values().size());
    h.kernels->submit(h.stream, MeanSquaredError{losses, dx, x, targets, write, kScale});
    h.kernels->submit(h.stream, MeanSquaredError{alone, {}, x, targets, Write::Store, kScale});
    const SquaredError want = squared_error(x.values(), targets.values(), s.n, s.c, kScale);
    EXPECT_TRUE(close(losses.values(), want.losses, want.losses, 1e-6, DType::F32));
    EXPECT_EQ(alone.values(), losses.values());
    // The difference is rounded once.
    EXPECT_TRUE(close(dx.values(), sum(want.gradient, before),
                      sum(absolute(want.gradient), absolute(before)), 5e-7, dtype))
        << text(write);
  }
}

TEST(MeanSquaredErrorTest, GradientIsTheDerivativeOfTheLoss) {
  constexpr int64_t n = 5, c = 37;
  const Values x = random_values(n * c, 1);
  Harness h;
  const Array targets = random_array(DType::F32, {n, c}, 2), losses(DType::F32, {n});
  const Array dx(DType::F32, {n, c});
  const auto forward = [&](const Values& v) {
    h.kernels->submit(
        h.stream,
        MeanSquaredError{losses, {}, Array(DType::F32, {n, c}, v), targets, Write::Store, 1.0f});
    return losses.values();
  };
  h.kernels->submit(h.stream, MeanSquaredError{losses, dx, Array(DType::F32, {n, c}, x), targets,
                                               Write::Store, 1.0f});
  const Values ones(n, 1.0);
  EXPECT_TRUE(differentiates(forward, ones, x, dx.values(), 1e-2, 2e-3));
  EXPECT_FALSE(differentiates(forward, ones, x, negative(dx.values()), 1e-2, 2e-3));
}

}  // namespace
}  // namespace ebb::test::tests_of_squared_error
