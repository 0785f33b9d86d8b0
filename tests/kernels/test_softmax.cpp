#include <cmath>
#include <limits>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_softmax {
namespace {

struct Size {
  int64_t n, c;
};
/// The last two have blocks of 16 warps on a GPU.
const Size kSizes[] = {{1, 1}, {3, 7}, {5, 16}, {4, 33}, {65, 64}, {3, 1000}, {2, 1032}, {2, 4099}};

class Softmax : public testing::TestWithParam<std::tuple<DType, Size>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Softmax,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes)),
                         ([](const auto& info) {
                           const auto& [dtype, s] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(s.n) + "_" +
                                  std::to_string(s.c);
                         }));

TEST_P(Softmax, Forward) {
  const auto [dtype, s] = GetParam();
  for (const double range : {1.0, 80.0}) {
    Harness h;
    const Array x = random_array(dtype, {s.n, s.c}, 1, range), y(dtype, {s.n, s.c});
    h.kernels->submit(h.stream, SoftmaxForward{y, x});
    const Values want = softmax(x.values(), s.n, s.c);
    // The argument of the exponential is rounded once, so its error is relative to the range.
    // Values below 1e-36 may be flushed.
    Values scale = want;
    for (double& v : scale) v = v * (1 + range / 10) + 1e-30;
    EXPECT_TRUE(close(y.values(), want, scale, 1e-6, dtype)) << range;
  }
}

TEST_P(Softmax, Backward) {
  const auto [dtype, s] = GetParam();
  for (const Write write : {Write::Store, Write::Add}) {
    Harness h;
    const Array y(dtype, {s.n, s.c}, softmax(random_values(s.n * s.c, 1, 3.0), s.n, s.c));
    const Array dy = random_array(dtype, {s.n, s.c}, 2), dx = random_array(dtype, {s.n, s.c}, 3);
    const Values before = write == Write::Add ? dx.values() : Values(dx.values().size());
    h.kernels->submit(h.stream, SoftmaxBackward{dx, dy, y, write});
    const Values slope = softmax_gradient(dy.values(), y.values(), s.n, s.c);
    // The gradient and its mean are at most 1, and may cancel.
    EXPECT_TRUE(
        close(dx.values(), sum(slope, before), sum(y.values(), absolute(before)), 1e-6, dtype))
        << text(write);
  }
}

TEST(Softmax, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 5, c = 37;
  const Values x = random_values(n * c, 1, 2.0), dy = random_values(n * c, 2);
  Harness h;
  const Array y(DType::F32, {n, c}), dx(DType::F32, {n, c});
  const auto forward = [&](const Values& v) {
    h.kernels->submit(h.stream, SoftmaxForward{y, Array(DType::F32, {n, c}, v)});
    return y.values();
  };
  forward(x);
  h.kernels->submit(h.stream, SoftmaxBackward{dx, Array(DType::F32, {n, c}, dy), y, Write::Store});
  EXPECT_TRUE(differentiates(forward, dy, x, dx.values(), 1e-2, 2e-3));
  // Without the mean of the gradient.
  EXPECT_FALSE(differentiates(forward, dy, x, multiply(forward(x), dy), 1e-2, 2e-3));
}

TEST(Softmax, LargeValuesDoNotOverflowAndNanStays) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    Harness h;
    const Array x(dtype, {5, 3},
                  {60000, 60000, -60000,     //
                   -infinity, 0, -infinity,  //
                   1, nan, 2,                //
                   infinity, 0, 0,           //
                   -infinity, -infinity, -infinity});
    const Array y(dtype, {5, 3});
    h.kernels->submit(h.stream, SoftmaxForward{y, x});
    const Values got = y.values();
    EXPECT_EQ(Values(got.begin(), got.begin() + 6), (Values{0.5, 0.5, 0, 0, 1, 0}));
    for (size_t i = 6; i < got.size(); ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_softmax
