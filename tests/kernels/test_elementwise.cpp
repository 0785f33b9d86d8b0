#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

class Elementwise : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int64_t n() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, Elementwise,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(1, 7, 15, 16, 17, 31, 33, 1009, 40009)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(Elementwise, GeluForward) {
  Harness h;
  const Array x = random_array(dtype(), {n()}, 1, 6.0), y(dtype(), {n()});
  h.kernels->submit(h.stream, ActivationForward{y, x, Activation::GeluTanh});
  const Values xs = x.values(), want = activation(Activation::GeluTanh, xs);
  // The error is relative even where GELU is nearly zero. It grows with the argument of tanh.
  Values scale = absolute(want);
  for (size_t i = 0; i < scale.size(); ++i) scale[i] *= 1 + std::pow(std::abs(xs[i]), 3) / 10;
  EXPECT_TRUE(close(y.values(), want, scale, 1e-6, dtype()));
}

TEST_P(Elementwise, GeluBackward) {
  for (Write write : {Write::Store, Write::Add}) {
    Harness h;
    const Array x = random_array(dtype(), {n()}, 1, 6.0), dy = random_array(dtype(), {n()}, 2);
    const Array dx = random_array(dtype(), {n()}, 3);
    const Values before = write == Write::Add ? dx.values() : Values(static_cast<size_t>(n()));
    h.kernels->submit(h.stream, ActivationBackward{dx, dy, x, Activation::GeluTanh, write});
    const Values slope = activation_slope(Activation::GeluTanh, x.values());
    EXPECT_TRUE(close(dx.values(), sum(before, multiply(dy.values(), slope)),
                      sum(absolute(before), absolute(dy.values())), 1e-6, dtype()))
        << text(write);
  }
}

TEST_P(Elementwise, ExactGelu) {
  for (Write write : {Write::Store, Write::Add}) {
    Harness h;
    const Array x = random_array(dtype(), {n()}, 1, 6.0), dy = random_array(dtype(), {n()}, 2);
    const Array y(dtype(), {n()}), dx = random_array(dtype(), {n()}, 3);
    const Values before = write == Write::Add ? dx.values() : Values(static_cast<size_t>(n()));
    h.kernels->submit(h.stream, ActivationForward{y, x, Activation::Gelu});
    h.kernels->submit(h.stream, ActivationBackward{dx, dy, x, Activation::Gelu, write});
    const Values want = activation(Activation::Gelu, x.values());
    EXPECT_TRUE(close(y.values(), want, absolute(want), 1e-6, dtype()));
    const Values slope = activation_slope(Activation::Gelu, x.values());
    EXPECT_TRUE(close(dx.values(), sum(before, multiply(dy.values(), slope)),
                      sum(absolute(before), absolute(dy.values())), 1e-6, dtype()))
        << text(write);
  }
}

TEST(Elementwise, TheComparisonFindsTheOtherGelu) {
  Harness h;
  const Array x = random_array(DType::F32, {100}, 1, 3.0), y(DType::F32, {100});
  h.kernels->submit(h.stream, ActivationForward{y, x, Activation::Gelu});
  const Values other = activation(Activation::GeluTanh, x.values());
  EXPECT_FALSE(close(y.values(), other, absolute(other), 1e-6, DType::F32));
}

TEST_P(Elementwise, Relu) {
  for (Write write : {Write::Store, Write::Add}) {
    Harness h;
    const Array x = random_array(dtype(), {n()}, 1), dy = random_array(dtype(), {n()}, 2);
    const Array y(dtype(), {n()}), dx = random_array(dtype(), {n()}, 3);
    const Values before = write == Write::Add ? dx.values() : Values(static_cast<size_t>(n()));
    h.kernels->submit(h.stream, ActivationForward{y, x, Activation::Relu});
    h.kernels->submit(h.stream, ActivationBackward{dx, dy, x, Activation::Relu, write});
    EXPECT_EQ(y.values(), activation(Activation::Relu, x.values()));
    const Values slope = activation_slope(Activation::Relu, x.values());
    const Values want = sum(before, multiply(dy.values(), slope));
    EXPECT_TRUE(close(dx.values(), want, want, 0, dtype())) << text(write);
  }
}

TEST_P(Elementwise, AddAccumulateAndZero) {
  Harness h;
  const Array a = random_array(dtype(), {n()}, 1), b = random_array(dtype(), {n()}, 2);
  const Array y(dtype(), {n()});
  h.kernels->submit(h.stream, Add{y, a, b});
  const Values want = sum(a.values(), b.values());
  EXPECT_TRUE(close(y.values(), want, want, 0, dtype()));
  const Values before = y.values();
  h.kernels->submit(h.stream, Accumulate{y, b});
  EXPECT_TRUE(close(y.values(), sum(before, b.values()), want, 0, dtype()));
  const Array wide = random_array(DType::F32, {n()}, 3);
  const Values wide_before = wide.values();
  h.kernels->submit(h.stream, Accumulate{wide, b});
  EXPECT_TRUE(close(wide.values(), sum(wide_before, b.values()), want, 0, DType::F32));
  h.kernels->submit(h.stream, Accumulate{wide, b, Write::Store});
  EXPECT_EQ(wide.values(), b.values());
  const Values exact = random_array(DType::F32, {n()}, 4).values();
  h.kernels->submit(h.stream, Accumulate{y, Array(DType::F32, {n()}, exact), Write::Store});
  EXPECT_EQ(y.values(), Array(dtype(), {n()}, exact).values());
  h.kernels->submit(h.stream, FillZero{y});
  EXPECT_EQ(y.values(), Values(before.size()));
}

TEST(Elementwise, GeluOfLargeValuesDoesNotOverflow) {
  const Values x = {-1e30, -300, -30, -10, -0.0, 0.0, 10, 30, 300, 1e30};
  for (const auto& [dtype, kind] : {std::pair(DType::F32, Activation::GeluTanh),
                                    {DType::BF16, Activation::GeluTanh},
                                    {DType::F32, Activation::Gelu},
                                    {DType::BF16, Activation::Gelu}}) {
    Harness h;
    const Array in(dtype, {10}, x), y(dtype, {10}), dx(dtype, {10});
    const Array ones(dtype, {10}, Values(10, 1.0));
    h.kernels->submit(h.stream, ActivationForward{y, in, kind});
    h.kernels->submit(h.stream, ActivationBackward{dx, ones, in, kind, Write::Store});
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = in.values()[i];
      EXPECT_NEAR(y.values()[i], std::max(v, 0.0), 1e-8) << v;
      EXPECT_NEAR(dx.values()[i], v == 0 ? 0.5 : (v > 0 ? 1 : 0), 1e-6) << v;
    }
  }
}

TEST(Elementwise, ActivationsKeepNan) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (Activation activation : {Activation::GeluTanh, Activation::Gelu, Activation::Relu}) {
      Harness h;
      const Array x(dtype, {20}, Values(20, std::nan(""))), y(dtype, {20});
      h.kernels->submit(h.stream, ActivationForward{y, x, activation});
      for (double v : y.values()) EXPECT_TRUE(std::isnan(v));
    }
  }
}

TEST(Elementwise, GeluBackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 999;
  Harness h;
  const Values x = random_values(n, 1, 3.0), dy = random_values(n, 2);
  for (Activation kind : {Activation::GeluTanh, Activation::Gelu}) {
    EXPECT_TRUE(differentiates([&](const Values& v) { return activation(kind, v); }, dy, x,
                               multiply(activation_slope(kind, x), dy), 1e-5, 1e-8));
  }
  const Array x_array(DType::F32, {n}, x), dy_array(DType::F32, {n}, dy), dx(DType::F32, {n});
  h.kernels->submit(h.stream,
                    ActivationBackward{dx, dy_array, x_array, Activation::GeluTanh, Write::Store});
  const auto forward = [&](const Values& v) {
    const Array y(DType::F32, {n});
    h.kernels->submit(h.stream,
                      ActivationForward{y, Array(DType::F32, {n}, v), Activation::GeluTanh});
    return y.values();
  };
  EXPECT_TRUE(differentiates(forward, dy, x, dx.values(), 1e-2, 2e-3));
  const Values wrong_sign = negative(dx.values());
  EXPECT_FALSE(differentiates(forward, dy, x, wrong_sign, 1e-2, 2e-3));
}

/// Checks fp32 bit patterns in steps of 4096: rounding to nearest even, NaN and infinity.
TEST(Elementwise, RoundGradientRoundsToBf16LikeTheType) {
  constexpr int64_t n = 1 << 20;
  Harness h;
  const Array sums(DType::F32, {n}), gradient(DType::BF16, {n});
  for (uint32_t offset : {0u, 1u, 0x7ffu, 0x800u}) {
    for (uint32_t i = 0; i < n; ++i) {
      sums.tensor().as<float>()[i] = std::bit_cast<float>(i * 4096u + offset);
    }
    h.kernels->submit(h.stream, RoundGradient{gradient, sums, {}, {}});
    for (int64_t i = 0; i < n; ++i) {
      const float x = sums.tensor().as<float>()[i];
      if (x != 0 && std::abs(x) < 0x1p-126f) continue;  // a device may flush denormals
      ASSERT_EQ(gradient.tensor().as<BF16>()[i].bits, BF16(x).bits) << x;
    }
  }
}

}  // namespace
}  // namespace ebb::test
