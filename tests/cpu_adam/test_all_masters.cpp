// The split of a master into weight and low half, for all 2^32 bit patterns.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <numeric>

#include "cpu_adam/master.h"
#include "system/thread_team.h"

namespace ebb::test {
namespace {

constexpr uint32_t kPiece = 1u << 14;
constexpr int64_t kNumPieces = (int64_t{1} << 32) / kPiece;

bool is_nan(uint32_t x) { return (x & 0x7fffffffu) > 0x7f800000u; }
bool is_inf(uint32_t x) { return (x & 0x7fffffffu) == 0x7f800000u; }

struct Counts {
  int64_t wrong = 0;     ///< not exact, or different from the scalar function
  int64_t lost_nan = 0;  ///< NaN whose weight or joined master is no NaN
  int64_t nan = 0;
  int64_t shown_as_inf = 0;  ///< finite masters whose weight is infinite
  int64_t ties_to_even = 0;  ///< finite masters whose low half would not fit with ties to even

  Counts& operator+=(const Counts& other) {
    wrong += other.wrong;
    lost_nan += other.lost_nan;
    nan += other.nan;
    shown_as_inf += other.shown_as_inf;
    ties_to_even += other.ties_to_even;
    return *this;
  }
};

void count(uint32_t x, uint16_t weight, int16_t low, uint32_t joined, Counts& counts) {
  const SplitMaster expected = split_master(x);
  const uint32_t shown = uint32_t{weight} << 16;
  counts.wrong += weight != expected.weight || low != expected.low;
  if (is_nan(x)) {
    ++counts.nan;
    counts.lost_nan += !is_nan(shown) || !is_nan(joined);
    return;
  }
  counts.wrong += joined != x;
  if (is_inf(x)) {
    counts.wrong += shown != x;
    return;
  }
  counts.shown_as_inf += is_inf(shown);
  const auto even = int64_t{x} - (int64_t{BF16(std::bit_cast<float>(x)).bits} << 16);
  counts.ties_to_even += even < -32768 || even > 32767;
}

Counts count_piece(uint32_t first) {
  std::array<float, kPiece> master, joined;
  std::array<BF16, kPiece> weight;
  std::array<int16_t, kPiece> low;
  for (uint32_t i = 0; i < kPiece; ++i) master[i] = std::bit_cast<float>(first + i);
  split_masters(master, weight, low);
  join_masters(weight, low, joined);
  Counts counts;
  for (uint32_t i = 0; i < kPiece; ++i) {
    count(first + i, weight[i].bits, low[i], std::bit_cast<uint32_t>(joined[i]), counts);
  }
  return counts;
}

TEST(SplitMaster, IsExactForAllPatterns) {
  ThreadTeam team(2);
  std::vector<Counts> pieces(kNumPieces);
  team.for_each(kNumPieces, [&](int64_t piece) {
    pieces[static_cast<size_t>(piece)] = count_piece(static_cast<uint32_t>(piece) * kPiece);
  });
  Counts all;
  for (const Counts& piece : pieces) all += piece;
  EXPECT_EQ(all.wrong, 0);
  EXPECT_EQ(all.lost_nan, 0);
  EXPECT_EQ(all.nan, 2 * ((1 << 23) - 1));
  EXPECT_EQ(all.shown_as_inf, 65536);
  EXPECT_EQ(all.ties_to_even, 32640);
}

}  // namespace
}  // namespace ebb::test
