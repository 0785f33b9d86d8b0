#include <algorithm>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_norm {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kRelative = 1e-6;

struct Size {
  int64_t n, c;
};
const Size kSizes[] = {{1, 2},    {3, 1},   {5, 15},   {4, 16},   {7, 17},   {65, 31}, {129, 64},
                       {200, 97}, {3, 769}, {4100, 3}, {70, 768}, {3, 2568}, {2, 8200}};

class LayerNorm : public testing::TestWithParam<std::tuple<DType, Size, Write>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LayerNorm,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes),
                                          testing::Values(Write::Store, Write::Add)),
                         ([](const auto& info) {
                           const auto& [dtype, size, write] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(size.n) + "_" +
                                  std::to_string(size.c) + "_" + text(write);
                         }));

struct Inputs {
  Array x, w, b, y, mean, rstd;

  Inputs(DType dtype, Size s)
      : x(random_array(dtype, {s.n, s.c}, 1)),
        w(random_array(dtype, {s.c}, 2)),
        b(random_array(dtype, {s.c}, 3)),
        y(dtype, {s.n, s.c}),
        mean(DType::F32, {s.n}),
        rstd(DType::F32, {s.n}) {}
  void forward(Harness& h) {
    h.kernels->submit(h.stream, LayerNormForward{y, mean, rstd, x, w, b, kEpsilon});
  }
};

TEST_P(LayerNorm, Forward) {
  const auto [dtype, s, write] = GetParam();
  Harness h;
  Inputs in(dtype, s);
  in.forward(h);
  const Norm want = layer_norm(in.x.values(), in.w.values(), in.b.values(), s.n, s.c, kEpsilon);
  // The rounding error of the mean, times rstd, is in every element.
  Values scale = absolute(want.y);
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] += 1 + want.rstd[i / static_cast<size_t>(s.c)];
  }
  EXPECT_TRUE(close(in.y.values(), want.y, scale, kRelative, dtype));
  EXPECT_TRUE(
      close(in.mean.values(), want.mean, Values(want.mean.size(), 1), kRelative, DType::F32));
  EXPECT_TRUE(close(in.rstd.values(), want.rstd, want.rstd, 2 * kRelative, DType::F32));
}

TEST_P(LayerNorm, Backward) {
  const auto [dtype, s, write] = GetParam();
  Harness h;
  Inputs in(dtype, s);
  in.forward(h);
  const Array dy = random_array(dtype, {s.n, s.c}, 4), dx = random_array(dtype, {s.n, s.c}, 5);
  const Array dw = random_array(DType::F32, {s.c}, 6), db = random_array(DType::F32, {s.c}, 7);
  const auto before = [&, write = write](const Array& a) {
    return write == Write::Add ? a.values() : Values(a.values().size());
  };
  const Values dx0 = before(dx), dw0 = before(dw), db0 = before(db);
  h.kernels->submit(h.stream,
                    LayerNormBackward{dx, write, dw, db, write, dy, in.x, in.w, in.mean, in.rstd});
  const NormGradient want =
      layer_norm_gradient(dy.values(), in.x.values(), in.w.values(), s.n, s.c, kEpsilon);
  // In rows of nearly equal elements rstd is large, and x - mean has few correct digits.
  const Norm norm = layer_norm(in.x.values(), in.w.values(), in.b.values(), s.n, s.c, kEpsilon);
  Values dx_scale = sum(want.dx_scale, absolute(dx0));
  for (size_t i = 0; i < dx_scale.size(); ++i) {
    const double rstd = norm.rstd[i / static_cast<size_t>(s.c)];
    dx_scale[i] += want.dx_scale[i] * rstd;
  }
  const double largest = *std::max_element(norm.rstd.begin(), norm.rstd.end());
  Values dw_scale = sum(want.dw_scale, absolute(dw0));
  for (size_t j = 0; j < dw_scale.size(); ++j) dw_scale[j] += largest;
  EXPECT_TRUE(close(dx.values(), sum(want.dx, dx0), dx_scale, kRelative, dtype));
  EXPECT_TRUE(close(dw.values(), sum(want.dw, dw0), dw_scale, kRelative, DType::F32));
  EXPECT_TRUE(close(db.values(), sum(want.db, db0), sum(want.db_scale, absolute(db0)), kRelative,
                    DType::F32));
}

TEST(LayerNorm, TheReferenceGradientIsTheDerivativeOfTheReference) {
  constexpr int64_t n = 5, c = 17;
  const Values x = random_values(n * c, 1), w = random_values(c, 2), b = random_values(c, 3);
  const Values dy = random_values(n * c, 4);
  const NormGradient g = layer_norm_gradient(dy, x, w, n, c, kEpsilon);
  const auto y = [&](const Values& x_, const Values& w_, const Values& b_) {
    return layer_norm(x_, w_, b_, n, c, kEpsilon).y;
  };
  EXPECT_TRUE(differentiates([&](const Values& v) { return y(v, w, b); }, dy, x, g.dx, 1e-5, 1e-7));
  EXPECT_TRUE(differentiates([&](const Values& v) { return y(x, v, b); }, dy, w, g.dw, 1e-5, 1e-7));
  EXPECT_TRUE(differentiates([&](const Values& v) { return y(x, w, v); }, dy, b, g.db, 1e-5, 1e-7));
}

TEST(LayerNorm, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 9, c = 33;
  Harness h;
  Inputs in(DType::F32, {n, c});
  in.forward(h);
  const Array dy = random_array(DType::F32, {n, c}, 4);
  const Array dx(DType::F32, {n, c}), dw(DType::F32, {c}), db(DType::F32, {c});
  h.kernels->submit(h.stream, LayerNormBackward{dx, Write::Store, dw, db, Write::Store, dy, in.x,
                                                in.w, in.mean, in.rstd});
  const auto forward = [&](const Values& x) {
    Inputs moved(DType::F32, {n, c});
    for (size_t i = 0; i < x.size(); ++i)
      moved.x.tensor().as<float>()[i] = static_cast<float>(x[i]);
    moved.forward(h);
    return moved.y.values();
  };
  EXPECT_TRUE(differentiates(forward, dy.values(), in.x.values(), dx.values(), 1e-3, 2e-3));
  const Values wrong_sign = negative(dx.values());
  EXPECT_FALSE(differentiates(forward, dy.values(), in.x.values(), wrong_sign, 1e-3, 2e-3));
}

TEST(LayerNorm, IsAccurateWithALargeOffset) {
  constexpr int64_t n = 2, c = 100;
  Harness h;
  Inputs in(DType::F32, {n, c});
  for (float& v : in.x.tensor().span<float>()) v += 1000.0f;
  in.forward(h);
  const Norm want = layer_norm(in.x.values(), in.w.values(), in.b.values(), n, c, kEpsilon);
  EXPECT_TRUE(close(in.y.values(), want.y, Values(want.y.size(), 1), 1e-3, DType::F32));
}

}  // namespace
}  // namespace ebb::test::tests_of_norm
