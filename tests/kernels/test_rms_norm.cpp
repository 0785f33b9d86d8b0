#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_rms_norm {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kRelative = 1e-6;

struct Size {
  int64_t n, c;
};
const Size kSizes[] = {{1, 2},    {3, 1},   {5, 15},   {4, 16},   {7, 17},   {65, 31}, {129, 64},
                       {200, 97}, {3, 769}, {4100, 3}, {70, 768}, {3, 2568}, {2, 8200}};

class RmsNormTest : public testing::TestWithParam<std::tuple<DType, Size, Write>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes),
                                          testing::Values(Write::Store, Write::Add)),
                         ([](const auto& info) {
                           const auto& [dtype, size, write] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(size.n) + "_" +
                                  std::to_string(size.c) + "_" + text(write);
                         }));

Values before(const Array& a, Write write) {
  return write == Write::Add ? a.values() : Values(a.values().size());
}

TEST_P(RmsNormTest, ForwardAndBackward) {
  const auto [dtype, s, write] = GetParam();
  Harness h;
  const Array x = random_array(dtype, {s.n, s.c}, 1), w = random_array(dtype, {s.c}, 2);
  const Array y(dtype, {s.n, s.c}), rstd(DType::F32, {s.n});
  h.kernels->submit(h.stream, RmsNormForward{y, rstd, x, w, kEpsilon});
  const Norm want = rms_norm(x.values(), w.values(), s.n, s.c, kEpsilon);
  EXPECT_TRUE(close(y.values(), want.y, absolute(want.y), kRelative, dtype));
  EXPECT_TRUE(close(rstd.values(), want.rstd, want.rstd, kRelative, DType::F32));

  const Array dy = random_array(dtype, {s.n, s.c}, 4), dx = random_array(dtype, {s.n, s.c}, 5);
  const Array dw = random_array(DType::F32, {s.c}, 6);
  const Values dx0 = before(dx, write), dw0 = before(dw, write);
  h.kernels->submit(h.stream, RmsNormBackward{dx, write, dw, write, dy, x, w, rstd});
  const NormGradient g = rms_norm_gradient(dy.values(), x.values(), w.values(), s.n, s.c, kEpsilon);
  EXPECT_TRUE(close(dx.values(), sum(g.dx, dx0), sum(g.dx_scale, absolute(dx0)), kRelative, dtype));
  EXPECT_TRUE(
      close(dw.values(), sum(g.dw, dw0), sum(g.dw_scale, absolute(dw0)), kRelative, DType::F32));
}

TEST(RmsNormTest, TheReferenceGradientIsTheDerivativeOfTheReference) {
  constexpr int64_t n = 5, c = 17;
  const Values x = random_values(n * c, 1), w = random_values(c, 2), dy = random_values(n * c, 4);
  const NormGradient g = rms_norm_gradient(dy, x, w, n, c, kEpsilon);
  const auto of_x = [&](const Values& v) { return rms_norm(v, w, n, c, kEpsilon).y; };
  const auto of_w = [&](const Values& v) { return rms_norm(x, v, n, c, kEpsilon).y; };
  EXPECT_TRUE(differentiates(of_x, dy, x, g.dx, 1e-5, 1e-7));
  EXPECT_TRUE(differentiates(of_w, dy, w, g.dw, 1e-5, 1e-7));
}

TEST(RmsNormTest, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 9, c = 33;
  Harness h;
  const Array x = random_array(DType::F32, {n, c}, 1), w = random_array(DType::F32, {c}, 2);
  const Array dy = random_array(DType::F32, {n, c}, 4), dx(DType::F32, {n, c});
  const Array y(DType::F32, {n, c}), rstd(DType::F32, {n}), dw(DType::F32, {c});
  const auto forward = [&](const Values& v) {
    h.kernels->submit(h.stream, RmsNormForward{y, rstd, Array(DType::F32, {n, c}, v), w, kEpsilon});
    return y.values();
  };
  forward(x.values());
  h.kernels->submit(h.stream, RmsNormBackward{dx, Write::Store, dw, Write::Store, dy, x, w, rstd});
  EXPECT_TRUE(differentiates(forward, dy.values(), x.values(), dx.values(), 1e-3, 2e-3));
  const Values wrong_sign = negative(dx.values());
  EXPECT_FALSE(differentiates(forward, dy.values(), x.values(), wrong_sign, 1e-3, 2e-3));
}

// ---- RMS norm of each head ---------------------------------------------------------------------

struct HeadCase {
  int64_t rows, width;
  HeadCounts heads;
  int64_t columns() const { return (heads.queries + 2 * heads.keys) * width; }
};
const HeadCase kHeads[] = {{1, 2, {1, 1}}, {7, 10, {3, 1}}, {65, 16, {4, 2}}, {130, 34, {2, 2}}};

class HeadNorm : public testing::TestWithParam<std::tuple<DType, HeadCase, Write>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HeadNorm,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kHeads),
                                          testing::Values(Write::Store, Write::Add)),
                         ([](const auto& info) {
                           const auto& [dtype, c, write] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(c.rows) + "_" +
                                  std::to_string(c.width) + "_" + text(write);
                         }));

/// Heads [first, last) of every row; each head becomes a row.
Values heads_of(const Values& qkv, const HeadCase& c, int64_t first, int64_t last) {
  Values r;
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto begin = qkv.begin() + row * c.columns();
    r.insert(r.end(), begin + first * c.width, begin + last * c.width);
  }
  return r;
}

TEST_P(HeadNorm, NormalizesQueriesAndKeysAndKeepsValues) {
  const auto [dtype, c, write] = GetParam();
  const auto [queries, keys] = c.heads;
  Harness h;
  const Array x = random_array(dtype, {c.rows, c.columns()}, 1),
              wq = random_array(dtype, {c.width}, 2);
  const Array wk = random_array(dtype, {c.width}, 3), y(dtype, {c.rows, c.columns()});
  const Array rstd(DType::F32, {c.rows, queries + keys});
  h.kernels->submit(h.stream, HeadNormForward{y, rstd, x, wq, wk, c.heads, kEpsilon});

  const Array g = random_array(dtype, {c.rows, c.columns()}, 4);
  const Array dwq = random_array(DType::F32, {c.width}, 5),
              dwk = random_array(DType::F32, {c.width}, 6);
  const Values dy = g.values();
  struct Part {
    int64_t first, last;
    const Array &w, &dw;
    Values dw0;
  };
  const Part parts[] = {{0, queries, wq, dwq, before(dwq, write)},
                        {queries, queries + keys, wk, dwk, before(dwk, write)}};
  h.kernels->submit(h.stream, HeadNormBackward{g, dwq, dwk, write, x, wq, wk, rstd, c.heads});
  for (const Part& part : parts) {
    const auto of = [&](const Values& v) { return heads_of(v, c, part.first, part.last); };
    const int64_t rows = c.rows * (part.last - part.first);
    const Values want = rms_norm(of(x.values()), part.w.values(), rows, c.width, kEpsilon).y;
    EXPECT_TRUE(close(of(y.values()), want, absolute(want), kRelative, dtype));
    const NormGradient slope =
        rms_norm_gradient(of(dy), of(x.values()), part.w.values(), rows, c.width, kEpsilon);
    EXPECT_TRUE(close(of(g.values()), slope.dx, slope.dx_scale, kRelative, dtype));
    EXPECT_TRUE(close(part.dw.values(), sum(slope.dw, part.dw0),
                      sum(slope.dw_scale, absolute(part.dw0)), kRelative, DType::F32));
  }
  const auto values = [&](const Values& v) {
    return heads_of(v, c, queries + keys, queries + 2 * keys);
  };
  EXPECT_EQ(values(y.values()), values(x.values()));
  EXPECT_EQ(values(g.values()), values(dy));
}

TEST(RmsNormTest, NanStaysInItsRow) {
  Harness h;
  Values values = random_values(3 * 20, 1);
  values[25] = std::nan("");
  const Array x(DType::BF16, {3, 20}, values), w = random_array(DType::BF16, {20}, 2);
  const Array y(DType::BF16, {3, 20}), rstd(DType::F32, {3});
  h.kernels->submit(h.stream, RmsNormForward{y, rstd, x, w, kEpsilon});
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y.values()[i]), i / 20 == 1) << i;
}

}  // namespace
}  // namespace ebb::test::tests_of_rms_norm
