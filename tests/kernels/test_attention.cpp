#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_attention {
namespace {

std::vector<int32_t> packed(int64_t batch, int64_t tokens, std::vector<int64_t> lengths) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    // Each row begins with another length, so that rows differ.
    size_t next = static_cast<size_t>(b) % lengths.size();
    int64_t start = 0, end = lengths[next];
    for (int64_t i = 0; i < tokens; ++i) {
      if (i == end) {
        next = (next + 1) % lengths.size();
        start = end;
        end += lengths[next];
      }
      starts.push_back(static_cast<int32_t>(start));
    }
  }
  return starts;
}

struct Case {
  std::string name;
  AttentionCase shape;
};

// Shapes are B, T, heads, head size. Documents have one token, a tile +-1, or several tiles.
std::vector<Case> cases() {
  std::vector<Case> r;
  for (bool causal : {true, false}) {
    const std::string kind = causal ? "causal_" : "full_";
    r.push_back({kind + "one_token", {1, 1, 1, 1, causal, {}}});
    r.push_back({kind + "odd", {2, 7, 3, 5, causal, {}}});
    r.push_back({kind + "tile", {1, 64, 2, 16, causal, {}}});
    r.push_back({kind + "tile_plus_one", {1, 65, 1, 17, causal, {}}});
    r.push_back({kind + "tiles", {2, 131, 2, 64, causal, {}}});
    r.push_back({kind + "query_blocks", {1, 300, 1, 33, causal, {}}});
    r.push_back({kind + "wide_head", {1, 40, 1, 130, causal, {}}});
    r.push_back({kind + "single_token_documents", {1, 70, 1, 8, causal, packed(1, 70, {1})}});
    r.push_back({kind + "documents", {3, 150, 2, 16, causal, packed(3, 150, {63, 1, 65, 2, 40})}});
    r.push_back({kind + "long_documents", {1, 530, 1, 8, causal, packed(1, 530, {257, 255, 64})}});
    r.push_back({kind + "grouped", {2, 71, 6, 10, causal, {}, 2}});
    r.push_back({kind + "one_key_head", {2, 130, 5, 16, causal, packed(2, 130, {31, 99}), 1}});
    r.push_back({kind + "scaled", {1, 40, 2, 12, causal, {}, 1, 0, 0.7}});
  }
  r.push_back({"window_of_one", {1, 70, 2, 8, true, {}, 1, 1}});
  r.push_back({"window", {2, 150, 2, 16, true, {}, 2, 37}});
  r.push_back({"window_over_tiles", {1, 400, 2, 8, true, {}, 1, 129}});
  r.push_back({"window_longer_than_rows", {1, 70, 1, 8, true, {}, 1, 71}});
  r.push_back({"window_and_documents", {2, 150, 1, 16, true, packed(2, 150, {63, 1, 86}), 1, 40}});
  return r;
}

class AttentionTest : public testing::TestWithParam<std::tuple<DType, Case>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  const AttentionCase& shape() const { return std::get<1>(GetParam()).shape; }
};
INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(cases())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

/// The kernels' arguments for a case.
struct Attend {
  const AttentionCase& s;
  Array starts, qkv, out, log_sum_exp, dout, dqkv;

  Attend(DType dtype, const AttentionCase& shape, const Values& input, const Values& gradient)
      : s(shape),
        starts(int_array(shape.starts)),
        qkv(dtype, {s.batch, s.tokens, s.qkv_columns()}, input),
        out(dtype, {s.batch, s.tokens, s.channels()}),
        log_sum_exp(DType::F32, {s.batch, s.heads, s.tokens}),
        dout(dtype, {s.batch, s.tokens, s.channels()}, gradient),
        dqkv(dtype, {s.batch, s.tokens, s.qkv_columns()}) {}
  Attend(DType dtype, const AttentionCase& shape, const Values& input)
      : Attend(dtype, shape, input,
               random_values(shape.batch * shape.tokens * shape.channels(), 7)) {}
  Attend(DType dtype, const AttentionCase& shape, double range = 2.0)
      : Attend(dtype, shape,
               random_values(shape.batch * shape.tokens * shape.qkv_columns(), 5, range)) {}

  AttentionShape arguments() const {
    return {s.heads, s.causal, s.starts.empty() ? Tensor{} : starts.tensor(),
            s.keys,  s.window, static_cast<float>(s.scale)};
  }
  void forward(Harness& h) const {
    h.kernels->submit(h.stream, AttentionForward{out, log_sum_exp, qkv, arguments()});
  }
  void backward(Harness& h) const {
    h.kernels->submit(h.stream, AttentionBackward{dqkv, dout, qkv, out, log_sum_exp, arguments()});
  }
};

TEST_P(AttentionTest, Forward) {
  Harness h;
  const Attend a(dtype(), shape());
  a.forward(h);
  const Attention want = attention(a.qkv.values(), shape());
  // Weights sum to one and values lie in [-2, 2].
  EXPECT_TRUE(close(a.out.values(), want.out, Values(want.out.size(), 2.0), 1e-6, dtype()));
  EXPECT_TRUE(close(a.log_sum_exp.values(), want.log_sum_exp, Values(want.log_sum_exp.size(), 10.0),
                    3e-7, DType::F32));
}

TEST_P(AttentionTest, Backward) {
  Harness h;
  const Attend a(dtype(), shape());
  a.forward(h);
  a.backward(h);
  const Values want = attention_gradient(a.dout.values(), a.qkv.values(), shape());
  // The sums have up to T terms of about one. In 16 bits `out`, which backward reads, is rounded.
  const double rounding = dtype() == DType::F32 ? 3e-7 : dtype() == DType::BF16 ? 0x1p-9 : 0x1p-12;
  const auto terms = static_cast<double>(shape().tokens * shape().heads / shape().key_heads());
  const double size = 2.0 + 0.5 * std::sqrt(terms);
  EXPECT_TRUE(close(a.dqkv.values(), want, Values(want.size(), size), rounding, dtype()));
}

TEST(AttentionTest, TheReferenceGradientIsTheDerivativeOfTheReference) {
  for (bool causal : {true, false}) {
    const AttentionCase shape{2, 9, 2, 5, causal, packed(2, 9, {4, 5})};
    const Values qkv = random_values(2 * 9 * 30, 1), dout = random_values(2 * 9 * 10, 2);
    EXPECT_TRUE(differentiates([&](const Values& v) { return attention(v, shape).out; }, dout, qkv,
                               attention_gradient(dout, qkv, shape), 1e-5, 1e-8));
  }
}

TEST(AttentionTest, BackwardIsTheDerivativeOfForward) {
  for (bool causal : {true, false}) {
    const AttentionCase shape{1, 70, 2, 9, causal, packed(1, 70, {30, 40})};
    Harness h;
    const Attend a(DType::F32, shape, 1.0);
    a.forward(h);
    a.backward(h);
    const auto forward = [&](const Values& v) {
      const Attend moved(DType::F32, shape, v);
      moved.forward(h);
      return moved.out.values();
    };
    EXPECT_TRUE(
        differentiates(forward, a.dout.values(), a.qkv.values(), a.dqkv.values(), 1e-2, 2e-3));
    Values wrong_sign = a.dqkv.values();
    for (size_t i = 0; i < wrong_sign.size(); ++i) {
      if (i % 54 < 18) wrong_sign[i] = -wrong_sign[i];  // only the gradient of the queries
    }
    EXPECT_FALSE(differentiates(forward, a.dout.values(), a.qkv.values(), wrong_sign, 1e-2, 2e-3));
  }
}

TEST(AttentionTest, BackwardIsTheDerivativeOfForwardWithGroupsAndWindows) {
  const AttentionCase shape{2, 9, 4, 6, true, packed(2, 9, {7, 2}), 2, 3};
  const Values qkv = random_values(2 * 9 * shape.qkv_columns(), 1);
  const Values dout = random_values(2 * 9 * shape.channels(), 2);
  EXPECT_TRUE(differentiates([&](const Values& v) { return attention(v, shape).out; }, dout, qkv,
                             attention_gradient(dout, qkv, shape), 1e-5, 1e-8));
  Harness h;
  const Attend a(DType::F32, shape, 1.0);
  a.forward(h);
  a.backward(h);
  const auto forward = [&](const Values& v) {
    const Attend moved(DType::F32, shape, v);
    moved.forward(h);
    return moved.out.values();
  };
  EXPECT_TRUE(
      differentiates(forward, a.dout.values(), a.qkv.values(), a.dqkv.values(), 1e-2, 2e-3));
}

TEST(AttentionTest, TheComparisonFindsOneKeyTooManyInAWindow) {
  const AttentionCase shape{1, 90, 2, 8, true, {}, 1, 33};
  AttentionCase wrong = shape;
  wrong.window = 34;
  Harness h;
  const Attend a(DType::F32, shape);
  a.forward(h);
  a.backward(h);
  const Values out = attention(a.qkv.values(), wrong).out;
  EXPECT_FALSE(close(a.out.values(), out, Values(out.size(), 2.0), 1e-6, DType::F32));
  const Values dqkv = attention_gradient(a.dout.values(), a.qkv.values(), wrong);
  EXPECT_FALSE(close(a.dqkv.values(), dqkv, Values(dqkv.size(), 8.0), 3e-7, DType::F32));
}

TEST(AttentionTest, IsStableForLargeScores) {
  const AttentionCase shape{1, 100, 1, 64, true, {}};
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    Harness h;
    const Attend a(dtype, shape, 300.0);  // scores of about 1e5
    a.forward(h);
    a.backward(h);
    for (double v : a.out.values()) EXPECT_LE(std::abs(v), 301.0);
    for (double v : a.dqkv.values()) EXPECT_TRUE(std::isfinite(v));
  }
}

/// Multiples of 1/64 between -2 and 2, exact in bf16: values() of torch_attention_error.py.
Values hashed_values(int64_t count, uint32_t seed) {
  Values result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    auto h = static_cast<uint32_t>(i) + seed * 0x9E3779B9u;
    h = (h ^ h >> 16) * 0x7FEB352Du;
    h = (h ^ h >> 15) * 0x846CA68Bu;
    h ^= h >> 16;
    result[static_cast<size_t>(i)] = (static_cast<double>(h >> 24) - 128) / 64;
  }
  return result;
}

struct Error {
  double rms, max;
};
Error error_of(const Values& found, const Values& expected) {
  Error error = {};
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(found[i] - expected[i]);
    error.rms += difference * difference / static_cast<double>(found.size());
    error.max = std::max(error.max, difference);
  }
  error.rms = std::sqrt(error.rms);
  return error;
}

// The bounds are what tests/kernels/torch_attention_error.py printed with PyTorch 2.15.0 on a CPU.
TEST(AttentionTest, IsAsExactAsPyTorch) {
  struct Bound {
    int64_t head_size;
    bool causal;
    Error out, gradient;
  };
  for (const Bound& bound : {Bound{64, true, {5.6108e-04, 5.2583e-03}, {9.8280e-04, 2.7761e-02}},
                             {64, false, {3.3734e-04, 3.9338e-03}, {5.4652e-04, 1.0670e-02}},
                             {128, true, {5.7445e-04, 5.3785e-03}, {9.8606e-04, 4.1435e-02}},
                             {128, false, {3.4099e-04, 2.3756e-03}, {5.4599e-04, 8.5859e-03}}}) {
    const AttentionCase shape{2, 256, 4, bound.head_size, bound.causal, {}};
    const int64_t num_channels = 2 * 256 * shape.channels();
    Harness h;
    const Attend a(DType::BF16, shape, hashed_values(3 * num_channels, 1),
                   hashed_values(num_channels, 2));
    a.forward(h);
    a.backward(h);
    const Values qkv = a.qkv.values();
    const Error out = error_of(a.out.values(), attention(qkv, shape).out);
    const Error gradient =
        error_of(a.dqkv.values(), attention_gradient(a.dout.values(), qkv, shape));
    std::ostringstream text;  // shown by --gtest_output=xml
    text << out.rms << ", " << out.max << ", " << gradient.rms << ", " << gradient.max;
    const std::string name = (bound.causal ? "causal_" : "full_") + std::to_string(bound.head_size);
    RecordProperty(name, text.str());
    SCOPED_TRACE(name + ": " + text.str());
    EXPECT_LE(out.rms, bound.out.rms);
    EXPECT_LE(out.max, bound.out.max);
    EXPECT_LE(gradient.rms, bound.gradient.rms);
    EXPECT_LE(gradient.max, bound.gradient.max);
  }
}

TEST(AttentionTest, DocumentsDoNotSeeEachOther) {
  const AttentionCase shape{1, 90, 1, 16, false, packed(1, 90, {40, 50})};
  Harness h;
  const Attend a(DType::F32, shape);
  a.forward(h);
  Values changed = a.qkv.values();
  for (size_t i = 40 * 48; i < changed.size(); ++i) changed[i] *= -1.5;
  const Attend b(DType::F32, shape, changed);
  b.forward(h);
  const Values x = a.out.values(), y = b.out.values();
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + 40 * 16, y.begin()));
  EXPECT_FALSE(std::equal(x.begin() + 40 * 16, x.end(), y.begin() + 40 * 16));
}

/// Masked keys are skipped, not multiplied by zero, except within a strip of four queries.
TEST(AttentionTest, NanInALaterTokenIsNotRead) {
  for (int64_t broken : {20, 64, 100}) {
    const AttentionCase shape{1, 130, 1, 16, true, {}};
    Harness h;
    Values qkv = random_values(130 * 48, 1);
    std::fill_n(qkv.begin() + broken * 48, 48, std::nan(""));
    const Attend a(DType::F32, shape, qkv);
    a.forward(h);
    const Values out = a.out.values();
    for (int64_t i = 0; i < 130 * 16; ++i) {
      EXPECT_EQ(std::isnan(out[static_cast<size_t>(i)]), i >= broken * 16) << i;
    }
  }
}

TEST(AttentionTest, NanInAKeyReachesItsQueries) {
  const AttentionCase shape{1, 20, 1, 16, true, {}};
  Harness h;
  Values qkv = random_values(20 * 48, 1);
  qkv[3 * 48 + 16] = std::nan("");  // the key of token 3
  const Attend a(DType::F32, shape, qkv);
  a.forward(h);
  for (int64_t i = 3; i < 20; ++i)
    EXPECT_TRUE(std::isnan(a.out.values()[static_cast<size_t>(i * 16)])) << i;
}

TEST(AttentionTest, InvalidDocumentStartsAreErrors) {
  for (std::vector<int32_t> bad :
       {std::vector<int32_t>{0, 0, 1, 1}, {1, 1, 2, 3}, {0, 1, 0, 0}, {0, 0, 0, 9}}) {
    const AttentionCase shape{1, 4, 1, 8, true, bad};
    Harness h;
    const Attend a(DType::F32, shape);
    EXPECT_THROW(a.forward(h), LogicError);
    EXPECT_THROW(a.backward(h), LogicError);
  }
}

TEST(AttentionTest, TheComparisonFindsAMaskOffByOne) {
  const AttentionCase shape{1, 65, 1, 8, true, packed(1, 65, {30, 35})};
  AttentionCase wrong = shape;
  for (int32_t& start : wrong.starts) start = start == 30 ? 29 : start;
  wrong.starts[29] = 29;
  Harness h;
  const Attend a(DType::F32, shape);
  a.forward(h);
  a.backward(h);
  const Values out = attention(a.qkv.values(), wrong).out;
  EXPECT_FALSE(close(a.out.values(), out, Values(out.size(), 2.0), 1e-6, DType::F32));
  const Values dqkv = attention_gradient(a.dout.values(), a.qkv.values(), wrong);
  EXPECT_FALSE(close(a.dqkv.values(), dqkv, Values(dqkv.size(), 8.0), 3e-7, DType::F32));
}

}  // namespace
}  // namespace ebb::test::tests_of_attention
