#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "device/random.h"

namespace ebb {
namespace {

using Words = std::array<uint32_t, 4>;

// Known results published with Random123 (philox4x32, 10 rounds).
static_assert(philox4x32(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Random, UniformIsInsideTheOpenInterval) {
  EXPECT_GT(uniform(0), 0.0);
  EXPECT_LT(uniform(~uint32_t{0}), 1.0);
}

TEST(Random, EachUseOfASeedHasItsOwnKey) {
  EXPECT_NE(random_key(1, RandomUse::Weights), random_key(1, RandomUse::SampleOrder));
  EXPECT_NE(random_key(1, RandomUse::Weights), random_key(2, RandomUse::Weights));
}

// The statistical moments must be within 5 standard errors of those of the normal distribution.
TEST(Random, NormalNumbersHaveTheMomentsOfTheirDistribution) {
  constexpr int kPairs = 1 << 17;
  double sum = 0, square = 0, cube = 0, fourth = 0, product = 0;
  for (uint64_t i = 0; i < kPairs; ++i) {
    const auto words = philox4x32(i, 0, 7);
    const auto [a, b] = normal_pair(words[0], words[1]);
    for (const double x : {a, b}) {
      sum += x, square += x * x, cube += x * x * x, fourth += x * x * x * x;
    }
    product += double{a} * double{b};
  }
  constexpr double kCount = 2.0 * kPairs;
  const double error = 1 / std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 0, 5 * error);
  EXPECT_NEAR(square / kCount, 1, 5 * std::sqrt(2.0) * error);
  EXPECT_NEAR(cube / kCount, 0, 5 * std::sqrt(15.0) * error);
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0) * error);
  EXPECT_NEAR(product / kPairs, 0, 5 / std::sqrt(double{kPairs}));
}

}  // namespace
}  // namespace ebb
