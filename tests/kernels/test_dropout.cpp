// Dropout of values and of attention weights. The mask follows from counters alone, so it does not
// depend on the device, on threads or on how a step is split.
#include <algorithm>
#include <cmath>

#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

constexpr Dropout kDropout{
    .probability = 0.3f, .key = 0x0123456789abcdef, .step = 7, .first_sample = 6, .site = 5};

/// The factor of one element, from its counters.
double factor_of(const Dropout& d, int64_t row, int64_t part, int64_t group, int64_t index) {
  const auto words = dropout_words(d, static_cast<uint32_t>(row), static_cast<uint32_t>(part),
                                   static_cast<uint32_t>(group));
  const bool kept = words[static_cast<size_t>(index)] >= 0.3f * 0x1p32;
  return kept ? 1 / (1 - static_cast<double>(0.3f)) : 0.0;
}

class DropoutTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, DropoutTest, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(DropoutTest, TheMaskFollowsFromTheCounters) {
  Harness h;
  for (const int64_t width : {1, 3, 4, 15, 16, 17, 63, 64, 65, 1000, 8191, 8193}) {
    const Array x = random_array(GetParam(), {3, width, 1}, 1, 2.0);
    Values want = x.values();
    for (int64_t i = 0; i < 3 * width; ++i) {
      const int64_t element = i % width;
      want[static_cast<size_t>(i)] *= factor_of(kDropout, i / width, 0, element / 4, element % 4);
    }
    h.kernels->submit(h.stream, ApplyDropout{x, kDropout});
    EXPECT_TRUE(close(x.values(), want, Values(want.size(), 2.0), 2e-7, GetParam())) << width;
  }
}

TEST_P(DropoutTest, TheShareOfZerosAndTheMeanAreRight) {
  constexpr int64_t kCount = 200'000;
  Harness h;
  for (const float probability : {0.1f, 0.5f, 0.9f}) {
    Dropout d = kDropout;
    d.probability = probability;
    const Array x(GetParam(), {1, kCount}, Values(kCount, 1.0));
    h.kernels->submit(h.stream, ApplyDropout{x, d});
    const Values y = x.values();
    const auto zeros = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    const double error = std::sqrt(kCount * probability * (1 - probability));
    EXPECT_NEAR(zeros, kCount * static_cast<double>(probability), 5 * error);
    for (const double v : y) {
      EXPECT_TRUE(v == 0 || std::abs(v * (1 - static_cast<double>(probability)) - 1) < 4e-3) << v;
    }
  }
}

TEST(Dropout, ADroppedNanIsZero) {
  Harness h;
  const Array x(DType::F32, {1, 64}, Values(64, std::nan("")));
  h.kernels->submit(h.stream, ApplyDropout{x, kDropout});
  for (int64_t i = 0; i < 64; ++i) {
    const bool kept = factor_of(kDropout, 0, 0, i / 4, i % 4) > 0;
    EXPECT_EQ(std::isnan(x.values()[static_cast<size_t>(i)]), kept);
  }
}

/// Each part of the counter changes the mask. The mask of a row depends on the number of its sample
/// in the step, not on how the step was split into micro-batches.
TEST(Dropout, MasksDifferByStepSampleSiteAndKey) {
  Harness h;
  const auto mask = [&](const Dropout& d, int64_t rows) {
    const Array x(DType::F32, {rows, 500}, Values(static_cast<size_t>(rows * 500), 1.0));
    h.kernels->submit(h.stream, ApplyDropout{x, d});
    return x.values();
  };
  const Values one = mask(kDropout, 1);
  Dropout other = kDropout;
  other.step += 1;
  EXPECT_NE(mask(other, 1), one);
  other = kDropout;
  other.site += 1;
  EXPECT_NE(mask(other, 1), one);
  other = kDropout;
  other.key += 1;
  EXPECT_NE(mask(other, 1), one);
  other = kDropout;
  other.first_sample += 1;
  const Values next = mask(other, 1);
  EXPECT_NE(next, one);
  const Values both = mask(kDropout, 2);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), both.begin()));
  EXPECT_TRUE(std::equal(next.begin(), next.end(), both.begin() + 500));
}

/// The factor of the weight that a query gives to a key.
double attention_factor(const Dropout& d, int64_t tokens, int64_t row, int64_t head, int64_t query,
                        int64_t key) {
  const uint32_t group = dropout_group(static_cast<uint32_t>(query), static_cast<uint32_t>(key),
                                       static_cast<uint32_t>(tokens));
  return factor_of(d, row, head, group, key % 4);
}

TEST_P(DropoutTest, OfAttentionWeightsFollowsTheDefinition) {
  constexpr int64_t kBatch = 2, kTokens = 83, kHeads = 2, kSize = 8;
  for (const bool causal : {true, false}) {
    Harness h;
    const Array qkv = random_array(GetParam(), {kBatch, kTokens, 3 * kHeads * kSize}, 1, 2.0);
    const Array dout = random_array(GetParam(), {kBatch, kTokens, kHeads * kSize}, 2);
    const Array out(GetParam(), {kBatch, kTokens, kHeads * kSize});
    const Array dqkv(GetParam(), {kBatch, kTokens, 3 * kHeads * kSize});
    const Array log_sum_exp(DType::F32, {kBatch, kHeads, kTokens});
    const AttentionShape shape{.num_heads = kHeads, .causal = causal, .dropout = kDropout};
    h.kernels->submit(h.stream, AttentionForward{out, log_sum_exp, qkv, shape});
    h.kernels->submit(h.stream, AttentionBackward{dqkv, dout, qkv, out, log_sum_exp, shape});
    AttentionCase definition{kBatch, kTokens, kHeads, kSize, causal, {}};
    definition.dropout = [](int64_t row, int64_t head, int64_t query, int64_t key) {
      return attention_factor(kDropout, kTokens, row, head, query, key);
    };
    const Values want = attention(qkv.values(), definition).out;
    const Values want_gradient = attention_gradient(dout.values(), qkv.values(), definition);
    EXPECT_TRUE(close(out.values(), want, Values(want.size(), 4.0), 1e-6, GetParam())) << causal;
    // As in test_attention.cpp: in 16 bits `out`, which backward reads, is rounded.
    const double rounding = GetParam() == DType::F32    ? 3e-7
                            : GetParam() == DType::BF16 ? 0x1p-9
                                                        : 0x1p-12;
    const double scale = (2.0 + 0.5 * std::sqrt(static_cast<double>(kTokens))) / 0.7;
    EXPECT_TRUE(close(dqkv.values(), want_gradient, Values(want_gradient.size(), scale), rounding,
                      GetParam()))
        << causal;
    // The mask of another step gives another result.
    AttentionShape other = shape;
    other.dropout.step += 1;
    h.kernels->submit(h.stream, AttentionForward{out, log_sum_exp, qkv, other});
    EXPECT_FALSE(close(out.values(), want, Values(want.size(), 4.0), 1e-6, GetParam()));
  }
}

}  // namespace
}  // namespace ebb::test
