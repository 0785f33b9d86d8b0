#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

class Gradient : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  int64_t n() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Gradient,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(1, 63, 64, 65, 1009, 65535, 65536, 65537,
                                                          140001)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(Gradient, RoundGradientRoundsTheSumOnce) {
  Harness h;
  const Array sums = random_array(DType::F32, {n()}, 1), gradient(dtype(), {n()});
  h.kernels->submit(h.stream, RoundGradient{gradient, sums, {}, {}});
  EXPECT_TRUE(close(gradient.values(), sums.values(), sums.values(), 0, dtype()));
}

/// The sum in the order that the contract of squared_norm_pieces fixes.
double squares_by_contract(const double* x, int64_t n) {
  double sums[64] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % 64] += x[i] * x[i];
  for (int half = 32; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

TEST_P(Gradient, SquaredNormAddsInTheFixedOrder) {
  Harness h(3);
  const Array gradient = random_array(dtype(), {n()}, 1);
  const int64_t pieces = (n() + kPieceElements - 1) / kPieceElements;
  const Array partials(DType::F64, {pieces});
  h.kernels->submit(h.stream, SquaredNormPieces{partials, gradient});
  const Values x = gradient.values();
  for (int64_t p = 0; p < pieces; ++p) {
    const int64_t first = p * kPieceElements;
    EXPECT_EQ(
        partials.values()[static_cast<size_t>(p)],
        squares_by_contract(&x[static_cast<size_t>(first)], std::min(kPieceElements, n() - first)));
  }
}

TEST_P(Gradient, RoundGradientGivesTheNormOfItsResult) {
  Harness h(3);
  const Array sums = random_array(DType::F32, {n()}, 1), gradient(dtype(), {n()});
  const int64_t pieces = (n() + kPieceElements - 1) / kPieceElements;
  const Array fused(DType::F64, {pieces}), apart(DType::F64, {pieces});
  h.kernels->submit(h.stream, RoundGradient{gradient, sums, {}, fused});
  h.kernels->submit(h.stream, SquaredNormPieces{apart, gradient});
  EXPECT_TRUE(close(gradient.values(), sums.values(), sums.values(), 0, dtype()));
  EXPECT_EQ(fused.raw(), apart.raw());
}

TEST_P(Gradient, RoundGradientAddsTheOtherSumsFirst) {
  Harness h;
  const Array a = random_array(DType::F32, {n()}, 1), b = random_array(DType::F32, {n()}, 2);
  const Array gradient(dtype(), {n()}), added(dtype(), {n()});
  const Array partials(DType::F64, {(n() + kPieceElements - 1) / kPieceElements});
  h.kernels->submit(h.stream, RoundGradient{gradient, a, b, partials});
  h.kernels->submit(h.stream, Accumulate{a, b});
  h.kernels->submit(h.stream, RoundGradient{added, a, {}, {}});
  EXPECT_EQ(gradient.raw(), added.raw());
}

TEST(Gradient, SquaredNormOfInfinityOrNanIsNotFinite) {
  Harness h;
  for (double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    Values x = random_values(1000, 1);
    x[777] = bad;
    const Array partials(DType::F64, {1});
    h.kernels->submit(h.stream, SquaredNormPieces{partials, Array(DType::BF16, {1000}, x)});
    EXPECT_FALSE(std::isfinite(partials.values()[0]));
  }
}

}  // namespace
}  // namespace ebb::test
