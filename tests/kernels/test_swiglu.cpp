#include <algorithm>
#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_swiglu {
namespace {

struct Size {
  int64_t n, f;
};
const Size kSizes[] = {{1, 1}, {3, 7}, {5, 16}, {4, 33}, {129, 64}, {2, 9001}};

class SwigluTest : public testing::TestWithParam<std::tuple<DType, Size, Write>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SwigluTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes),
                                          testing::Values(Write::Store, Write::Add)),
                         ([](const auto& info) {
                           const auto& [dtype, size, write] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(size.n) + "_" +
                                  std::to_string(size.f) + "_" + text(write);
                         }));

TEST_P(SwigluTest, ForwardAndBackward) {
  const auto [dtype, s, write] = GetParam();
  Harness h;
  const Array x = random_array(dtype, {s.n, 2 * s.f}, 1, 6.0), y(dtype, {s.n, s.f});
  h.kernels->submit(h.stream, SwigluForward{y, x});
  const Values want = swiglu(x.values(), s.n, s.f);
  EXPECT_TRUE(close(y.values(), want, absolute(want), 1e-6, dtype));

  const Array dy = random_array(dtype, {s.n, s.f}, 2), dx = random_array(dtype, {s.n, 2 * s.f}, 3);
  const Values before = write == Write::Add ? dx.values() : Values(dx.values().size());
  h.kernels->submit(h.stream, SwigluBackward{dx, dy, x, write});
  const Values slope = swiglu_gradient(dy.values(), x.values(), s.n, s.f);
  // The terms of the derivative of SiLU cancel near its zero, so the error is absolute.
  Values scale = sum(absolute(slope), absolute(before));
  for (double& v : scale) v += 6.0;
  EXPECT_TRUE(close(dx.values(), sum(slope, before), scale, 3e-7, dtype));
}

TEST(SwigluTest, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 9, f = 37;
  const Values x = random_values(n * 2 * f, 1, 3.0), dy = random_values(n * f, 2);
  EXPECT_TRUE(differentiates([](const Values& v) { return swiglu(v, n, f); }, dy, x,
                             swiglu_gradient(dy, x, n, f), 1e-5, 1e-8));
  Harness h;
  const Array dx(DType::F32, {n, 2 * f});
  h.kernels->submit(h.stream, SwigluBackward{dx, Array(DType::F32, {n, f}, dy),
                                             Array(DType::F32, {n, 2 * f}, x), Write::Store});
  const auto forward = [&](const Values& v) {
    const Array y(DType::F32, {n, f});
    h.kernels->submit(h.stream, SwigluForward{y, Array(DType::F32, {n, 2 * f}, v)});
    return y.values();
  };
  EXPECT_TRUE(differentiates(forward, dy, x, dx.values(), 1e-2, 2e-3));
  Values swapped = dx.values();  // gate and up
  for (int64_t i = 0; i < n; ++i) {
    const auto row = swapped.begin() + i * 2 * f;
    std::swap_ranges(row, row + f, row + f);
  }
  EXPECT_FALSE(differentiates(forward, dy, x, swapped, 1e-2, 2e-3));
}

TEST(SwigluTest, LargeGatesDoNotOverflowAndNanStays) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const double large = dtype == DType::F16 ? 65504 : 1e30;
    const Values gates = {-large, -300, -89, 0, 89, 300, large, std::nan("")};
    Values x = gates;
    x.resize(2 * gates.size(), 1.0);
    const auto f = static_cast<int64_t>(gates.size());
    Harness h;
    const Array in(dtype, {1, 2 * f}, x), y(dtype, {1, f}), dx(dtype, {1, 2 * f});
    h.kernels->submit(h.stream, SwigluForward{y, in});
    h.kernels->submit(h.stream, SwigluBackward{dx, Array(dtype, {1, f}, Values(gates.size(), 1.0)),
                                               in, Write::Store});
    for (size_t i = 0; i + 1 < gates.size(); ++i) {
      EXPECT_NEAR(y.values()[i], std::max(in.values()[i], 0.0), 1e-7);
      EXPECT_NEAR(dx.values()[i], gates[i] == 0 ? 0.5 : (gates[i] > 0 ? 1 : 0), 1e-6) << gates[i];
    }
    EXPECT_TRUE(std::isnan(y.values().back()));
    EXPECT_TRUE(std::isnan(dx.values()[gates.size() - 1]));
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_swiglu
