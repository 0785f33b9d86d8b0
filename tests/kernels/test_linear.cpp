#include <algorithm>
#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_linear {
namespace {

constexpr int64_t kTermsAtOnce = 8;

/// The error of an fp32 sum of k products that is allowed, relative to the sum of the absolute
/// products S.
///
/// Tensor cores before sm_90 add kTermsAtOnce products at once and truncate: an error of up to
/// 2^-23 |P| each time, where P is the sum until then, and always towards zero. For terms of random
/// signs and size t, |P| after j terms is about sqrt(j) t, and S is about 0.75 k t (factors of one
/// uniform distribution), so all errors are about 2^-23 sqrt(k) / 9 S. Twice that is allowed, and
/// two roundings for a bias or an old value. TheBoundAllowsTensorCoresThatTruncate checks it.
double relative(int64_t k) {
  return std::ldexp(1.0, -23) * (2 + std::sqrt(static_cast<double>(k)) / 4.5);
}

struct Size {
  int64_t n, c, oc;
};

// One, odd sizes, tiles +-1, several passes over k, and several super-blocks of rows and columns.
const Size kSizes[] = {{1, 1, 1},      {7, 3, 5},      {8, 16, 48},    {9, 17, 49},
                       {15, 31, 47},   {33, 64, 97},   {193, 50, 193}, {5, 1025, 67},
                       {3, 2500, 100}, {1031, 5, 11},  {3, 7, 3079},   {2, 3079, 7},
                       {2, 800, 1600}, {1031, 768, 2}, {1031, 769, 2}};

struct Operands {
  const char* name;
  DType dtype;
  Arithmetic arithmetic;
};
const Operands kOperands[] = {{"fp32", DType::F32, Arithmetic::Fp32},
                              {"bf16", DType::BF16, Arithmetic::Fp32},
                              {"bf16_dot", DType::BF16, Arithmetic::Bf16Dot},
                              {"fp16", DType::F16, Arithmetic::Fp32}};

bool can_run(Arithmetic arithmetic) { return Harness::can_compute(arithmetic); }

/// The products that a library may round before it adds `added`; empty: it rounds only once.
Values rounded_before(const Values& products, bool added, DType dtype) {
  return Harness::has_product_library() && added && dtype != DType::F32 ? products : Values{};
}

using LinearCase = std::tuple<Operands, Size, Write>;

class Linear : public testing::TestWithParam<LinearCase> {
 protected:
  void SetUp() override {
    if (!can_run(arithmetic())) GTEST_SKIP() << "this device does not have this arithmetic";
  }
  DType dtype() const { return std::get<0>(GetParam()).dtype; }
  Arithmetic arithmetic() const { return std::get<0>(GetParam()).arithmetic; }
  Size size() const { return std::get<1>(GetParam()); }
  Write write() const { return std::get<2>(GetParam()); }
  bool adds() const { return write() == Write::Add; }
};

std::string name_of_case(const testing::TestParamInfo<LinearCase>& info) {
  const auto& [operands, size, write] = info.param;
  return std::string(operands.name) + "_" + std::to_string(size.n) + "_" + std::to_string(size.c) +
         "_" + std::to_string(size.oc) + "_" + text(write);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Linear,
                         testing::Combine(testing::ValuesIn(kOperands), testing::ValuesIn(kSizes),
                                          testing::Values(Write::Store, Write::Add)),
                         name_of_case);

TEST_P(Linear, Forward) {
  const auto [n, c, oc] = size();
  Harness h(2, arithmetic());
  const Array x = random_array(dtype(), {n, c}, 1), w = random_array(dtype(), {oc, c}, 2);
  const Array bias = random_array(dtype(), {oc}, 3);
  const bool with_bias =
      adds();  // linear_forward has no Write; the test parameter selects the bias
  const Array y(dtype(), {n, oc});
  h.kernels->submit(h.stream, LinearForward{y, x, w, with_bias ? bias.tensor() : Tensor{}});
  const Values b = with_bias ? bias.values() : Values{};
  EXPECT_TRUE(close(y.values(), linear(x.values(), w.values(), b, n, c, oc),
                    linear(absolute(x.values()), absolute(w.values()), absolute(b), n, c, oc),
                    relative(c), dtype(),
                    rounded_before(linear(x.values(), w.values(), {}, n, c, oc), adds(), dtype())));
}

TEST_P(Linear, ForwardWithAResidual) {
  const auto [n, c, oc] = size();
  Harness h(2, arithmetic());
  const Array x = random_array(dtype(), {n, c}, 1), w = random_array(dtype(), {oc, c}, 2);
  const Array bias = random_array(dtype(), {oc}, 3), residual = random_array(dtype(), {n, oc}, 4);
  const bool with_bias = adds();
  const Array y(dtype(), {n, oc});
  h.kernels->submit(h.stream,
                    LinearForward{y, x, w, with_bias ? bias.tensor() : Tensor{}, residual});
  const Values b = with_bias ? bias.values() : Values{};
  const Values products = linear(x.values(), w.values(), b, n, c, oc);
  // A GPU may round before it adds the bias, and again before it adds the residual.
  const Values alone = linear(x.values(), w.values(), {}, n, c, oc);
  const Values roundings = with_bias ? sum(absolute(alone), absolute(products)) : products;
  EXPECT_TRUE(close(y.values(), sum(products, residual.values()),
                    sum(linear(absolute(x.values()), absolute(w.values()), absolute(b), n, c, oc),
                        absolute(residual.values())),
                    relative(c), dtype(), rounded_before(roundings, true, dtype())));
}

TEST_P(Linear, BackwardInput) {
  const auto [n, c, oc] = size();
  Harness h(2, arithmetic());
  const Array dy = random_array(dtype(), {n, oc}, 1), w = random_array(dtype(), {oc, c}, 2);
  for (const DType type : {dtype(), DType::F32}) {  // dx may be fp32 although the operands are bf16
    const Array dx = random_array(type, {n, c}, 3);
    const Values before = adds() ? dx.values() : Values(static_cast<size_t>(n * c));
    h.kernels->submit(h.stream, LinearBackwardInput{dx, dy, w, write()});
    const Values products = product(dy.values(), w.values(), n, oc, c);
    EXPECT_TRUE(
        close(dx.values(), sum(products, before),
              sum(product(absolute(dy.values()), absolute(w.values()), n, oc, c), absolute(before)),
              relative(oc), type, rounded_before(products, adds(), type)));
  }
}

TEST_P(Linear, BackwardWeight) {
  const auto [n, c, oc] = size();
  Harness h(2, arithmetic());
  const Array dy = random_array(dtype(), {n, oc}, 1), x = random_array(dtype(), {n, c}, 2);
  const Array dw = random_array(DType::F32, {oc, c}, 3), db = random_array(DType::F32, {oc}, 4);
  const Values dw_before = adds() ? dw.values() : Values(static_cast<size_t>(oc * c));
  const Values db_before = adds() ? db.values() : Values(static_cast<size_t>(oc));
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, db, dy, x, write()});
  const Values dyt = transpose(dy.values(), n, oc);
  EXPECT_TRUE(
      close(dw.values(), sum(product(dyt, x.values(), oc, n, c), dw_before),
            sum(product(absolute(dyt), absolute(x.values()), oc, n, c), absolute(dw_before)),
            relative(n), DType::F32));
  EXPECT_TRUE(close(db.values(), sum(column_sums(dy.values(), n, oc), db_before),
                    sum(column_sums(absolute(dy.values()), n, oc), absolute(db_before)),
                    relative(n), DType::F32));
}

TEST(Linear, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 13, c = 19, oc = 23;
  Harness h;
  const Values x = random_values(n * c, 1), w = random_values(oc * c, 2), b = random_values(oc, 3);
  const Values dy = random_values(n * oc, 4);
  const auto forward = [&](const Values& x_now, const Values& w_now, const Values& b_now) {
    const Array y(DType::F32, {n, oc});
    h.kernels->submit(
        h.stream, LinearForward{y, Array(DType::F32, {n, c}, x_now),
                                Array(DType::F32, {oc, c}, w_now), Array(DType::F32, {oc}, b_now)});
    return y.values();
  };
  const Array x_array(DType::F32, {n, c}, x), w_array(DType::F32, {oc, c}, w);
  const Array dy_array(DType::F32, {n, oc}, dy);
  const Array dx(DType::F32, {n, c}), dw(DType::F32, {oc, c}), db(DType::F32, {oc});
  h.kernels->submit(h.stream, LinearBackwardInput{dx, dy_array, w_array, Write::Store});
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, db, dy_array, x_array, Write::Store});
  EXPECT_TRUE(differentiates([&](const Values& v) { return forward(v, w, b); }, dy, x, dx.values(),
                             0.5, 1e-5));
  EXPECT_TRUE(differentiates([&](const Values& v) { return forward(x, v, b); }, dy, w, dw.values(),
                             0.5, 1e-5));
  EXPECT_TRUE(differentiates([&](const Values& v) { return forward(x, w, v); }, dy, b, db.values(),
                             0.5, 1e-5));

  const Values wrong_sign = negative(dx.values());
  EXPECT_FALSE(differentiates([&](const Values& v) { return forward(v, w, b); }, dy, x, wrong_sign,
                              0.5, 1e-5));
}

TEST(Linear, TheComparisonFindsAMissingTermAndAShift) {
  constexpr int64_t n = 9, c = 17, oc = 49;
  Harness h;
  const Array x = random_array(DType::F32, {n, c}, 1), w = random_array(DType::F32, {oc, c}, 2);
  const Array y(DType::F32, {n, oc});
  h.kernels->submit(h.stream, LinearForward{y, x, w, {}});
  const Values want = linear(x.values(), w.values(), {}, n, c, oc);
  const Values scale = linear(absolute(x.values()), absolute(w.values()), {}, n, c, oc);
  EXPECT_TRUE(close(y.values(), want, scale, relative(c), DType::F32));
  Values missing_term = y.values();
  missing_term[48] -= x.values()[16] * w.values()[48 * c + 16];
  EXPECT_FALSE(close(missing_term, want, scale, relative(c), DType::F32));
  Values shifted = y.values();
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  EXPECT_FALSE(close(shifted, want, scale, relative(c), DType::F32));
}

TEST(Linear, TheComparisonAllowsTwoRoundingsAndFindsAMissingBias) {
  constexpr int64_t n = 33, c = 64, oc = 97;
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Array x = random_array(dtype, {n, c}, 1), w = random_array(dtype, {oc, c}, 2);
    const Array bias = random_array(dtype, {oc}, 3);
    const Values products = linear(x.values(), w.values(), {}, n, c, oc);
    const Values want = linear(x.values(), w.values(), bias.values(), n, c, oc);
    const Values scale =
        linear(absolute(x.values()), absolute(w.values()), absolute(bias.values()), n, c, oc);
    const Values once = Array(dtype, {n, oc}, products).values();
    Values sums = once;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias.values()[i % oc];
    const Values twice = Array(dtype, {n, oc}, sums).values();
    EXPECT_FALSE(close(twice, want, scale, relative(c), dtype));
    EXPECT_TRUE(close(twice, want, scale, relative(c), dtype, products));
    EXPECT_FALSE(close(once, want, scale, relative(c), dtype, products)) << "no bias";
    Values missing_term = want;
    missing_term[48] -= x.values()[16] * w.values()[48 * c + 16];
    EXPECT_FALSE(close(Array(dtype, {n, oc}, missing_term).values(), want, scale, relative(c),
                       dtype, products));
  }
}

/// The nearest fp32 number towards zero.
double truncated(double value) {
  const auto rounded = static_cast<float>(value);
  if (std::abs(static_cast<double>(rounded)) <= std::abs(value)) return rounded;
  return std::nextafter(rounded, 0.0f);
}

TEST(Linear, TheBoundAllowsTensorCoresThatTruncate) {
  for (const auto& [n, k, oc] : {Size{3, 2500, 100}, Size{9, 1600, 49}, Size{2, 3079, 7}}) {
    const Values x = random_array(DType::BF16, {n, k}, 1).values();
    const Values w = random_array(DType::BF16, {oc, k}, 2).values();
    Values sums(static_cast<size_t>(n * oc));
    for (int64_t i = 0; i < n * oc; ++i) {
      double sum = 0;
      for (int64_t first = 0; first < k; first += kTermsAtOnce) {
        for (int64_t j = first; j < std::min(k, first + kTermsAtOnce); ++j) {
          sum += static_cast<double>(x[static_cast<size_t>(i / oc * k + j)]) *
                 w[static_cast<size_t>(i % oc * k + j)];
        }
        sum = truncated(sum);
      }
      sums[static_cast<size_t>(i)] = sum;
    }
    const Values want = linear(x, w, {}, n, k, oc);
    const Values scale = linear(absolute(x), absolute(w), {}, n, k, oc);
    EXPECT_TRUE(close(sums, want, scale, relative(k), DType::F32)) << k;
    EXPECT_FALSE(close(sums, want, scale, relative(k) / 16, DType::F32)) << k;
    sums[1] -= x[0] * w[static_cast<size_t>(k)];
    EXPECT_FALSE(close(sums, want, scale, relative(k), DType::F32)) << k;
  }
}

TEST(Linear, NanStaysInItsRow) {
  constexpr int64_t n = 9, c = 20, oc = 50;
  for (const auto& [name, dtype, arithmetic] : kOperands) {
    if (!can_run(arithmetic)) continue;
    Harness h(2, arithmetic);
    Values x = random_values(n * c, 1);
    x[3 * c + 7] = std::nan("");
    const Array y(dtype, {n, oc});
    h.kernels->submit(
        h.stream, LinearForward{y, Array(dtype, {n, c}, x), random_array(dtype, {oc, c}, 2), {}});
    const Values got = y.values();
    for (int64_t i = 0; i < n * oc; ++i) {
      EXPECT_EQ(std::isnan(got[static_cast<size_t>(i)]), i / oc == 3) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_linear
