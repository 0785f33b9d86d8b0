// The split of a master for many bit patterns. test_all_masters.cpp checks all of them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "cpu_adam/master.h"
#include "device/errors.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test {
namespace {

/// Each 997th pattern, and all patterns within 300 of a change of exponent, sign or rounding.
std::vector<float> sample_patterns() {
  std::vector<float> result;
  for (uint64_t x = 0; x < uint64_t{1} << 32; x += 997) {
    result.push_back(std::bit_cast<float>(static_cast<uint32_t>(x)));
  }
  for (uint32_t border = 0; border < 512; ++border) {
    for (uint32_t place : {0u, 0x8000u, 0x10000u, 0x7f8000u}) {
      for (uint32_t near = 0; near < 600; ++near) {
        result.push_back(std::bit_cast<float>((border << 23) + place + near - 300u));
      }
    }
  }
  return result;
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
bool is_nan(uint32_t x) { return (x & 0x7fffffffu) > 0x7f800000u; }

TEST(SplitMaster, IsExactOnEveryInstructionSet) {
  const std::vector<float> patterns = sample_patterns();
  std::vector<BF16> weight(patterns.size());
  std::vector<int16_t> low(patterns.size());
  std::vector<float> joined(patterns.size());
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    split_masters(patterns, weight, low);
    join_masters(weight, low, joined);
    size_t num_wrong = 0;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const uint32_t x = bits_of(patterns[i]);
      const SplitMaster expected = split_master(x);
      const bool same = weight[i].bits == expected.weight && low[i] == expected.low &&
                        bits_of(joined[i]) == join_master(expected);
      num_wrong += !same || (is_nan(x) ? !is_nan(bits_of(joined[i])) : bits_of(joined[i]) != x);
    }
    EXPECT_EQ(num_wrong, 0u) << hwy::TargetName(target);
  }
}

TEST(SplitMaster, RoundsToNearestTiesAway) {
  EXPECT_EQ(split_master(0x3f800000).weight, 0x3f80);  // 1
  EXPECT_EQ(split_master(0x3f807fff).weight, 0x3f80);
  EXPECT_EQ(split_master(0x3f808000).weight,
            0x3f81);  // a tie, rounded up; ties to even would round down
  EXPECT_EQ(split_master(0x3f808000).low, -32768);
  EXPECT_EQ(split_master(0xbf808000).weight, 0xbf81);
  EXPECT_EQ(split_master(0x3f7fffff).weight, 0x3f80);  // rounded up to the next exponent
  EXPECT_EQ(split_master(0x3f7fffff).low, -1);
  // With ties to even the low half would be +32768, which does not fit.
  const auto even = BF16(std::bit_cast<float>(0x3f808000u));
  EXPECT_EQ(0x3f808000u - (uint32_t{even.bits} << 16), 32768u);
}

TEST(SplitMaster, SpecialValuesAreAsDocumented) {
  EXPECT_EQ(split_master(0x7f800000).weight, 0x7f80);  // Inf
  EXPECT_EQ(split_master(0x7f800000).low, 0);
  EXPECT_EQ(split_master(0x7f7f7fff).weight, 0x7f7f);             // the largest finite weight
  EXPECT_EQ(split_master(0x7f7f8000).weight, 0x7f80);             // the weight is infinite,
  EXPECT_EQ(join_master(split_master(0x7f7f8000)), 0x7f7f8000u);  // but the master is exact
  EXPECT_EQ(split_master(0x7fffffff).weight, 0x7fff);             // NaN, not -0
  EXPECT_EQ(split_master(0x7f800001).weight, 0x7fc0);             // NaN, not Inf
  EXPECT_EQ(split_master(0xffffffff).weight, 0xffff);
}

TEST(SplitMaster, WritesNothingOutsideTheSpans) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<float> master(n, 1.0f / 3), joined(n + 1, -7.0f);
    std::vector<BF16> weight(n + 1, BF16::from_bits(0x1234));
    std::vector<int16_t> low(n + 1, 0x4321);
    split_masters(master, {weight.data(), n}, {low.data(), n});
    join_masters({weight.data(), n}, {low.data(), n}, {joined.data(), n});
    EXPECT_EQ(weight[n].bits, 0x1234);
    EXPECT_EQ(low[n], 0x4321);
    EXPECT_EQ(joined[n], -7.0f);
    joined.pop_back();
    EXPECT_EQ(joined, master);
  }
}

TEST(SplitMaster, RejectsSpansOfDifferentLengths) {
  std::vector<float> master(4);
  std::vector<BF16> weight(3);
  std::vector<int16_t> low(4);
  EXPECT_THROW(split_masters(master, weight, low), LogicError);
  EXPECT_THROW(join_masters(weight, low, master), LogicError);
}

}  // namespace
}  // namespace ebb::test
