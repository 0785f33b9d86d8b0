#include <gtest/gtest.h>

#include <map>
#include <random>

#include "autograd/arena.h"
#include "device/errors.h"

namespace ebb {
namespace {

TEST(Arena, TakesTheFirstHoleThatFits) {
  Arena arena(nullptr, 4096);
  EXPECT_EQ(arena.allocate(256), 0u);
  EXPECT_EQ(arena.allocate(512), 256u);
  EXPECT_EQ(arena.allocate(1), 768u);
  EXPECT_EQ(arena.allocate(0), 1024u);  // an empty allocation has its own address
  EXPECT_EQ(arena.live_bytes(), 1280u);
  arena.release(256, 512);
  EXPECT_EQ(arena.allocate(768), 1280u);  // the hole is too small
  EXPECT_EQ(arena.allocate(256), 256u);
  EXPECT_EQ(arena.allocate(256), 512u);
  EXPECT_EQ(arena.peak_bytes(), 2048u);
}

TEST(Arena, AdjacentHolesAreMerged) {
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    Arena arena(nullptr, 1024);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(arena.allocate(256), 256 * i);
    for (int i : order) arena.release(256 * static_cast<size_t>(i), 256);
    EXPECT_EQ(arena.allocate(768), 0u);
    EXPECT_EQ(arena.live_bytes(), 1024u);
  }
}

TEST(Arena, RejectsTooLargeAllocationsAndDoubleFrees) {
  Arena arena(nullptr, 1024);
  const size_t a = arena.allocate(512);
  EXPECT_THROW(arena.allocate(513), LogicError);
  EXPECT_EQ(arena.allocate(512), 512u);
  EXPECT_THROW(arena.allocate(1), LogicError);
  arena.release(a, 512);
  EXPECT_THROW(arena.release(a, 512), LogicError);
  EXPECT_THROW(arena.release(a + 256, 256), LogicError);
  EXPECT_THROW(arena.release(256, 512), LogicError);  // half of this range is free
  EXPECT_EQ(arena.live_bytes(), 512u);
}

TEST(Arena, CallsItsObserver) {
  size_t live = 0, needed = 0, calls = 0;
  Arena arena(nullptr, 1 << 20, [&](ArenaEvent event, size_t, size_t bytes) {
    if (event == ArenaEvent::Allocate) live += bytes;
    if (event == ArenaEvent::Release) live -= bytes;
    if (event == ArenaEvent::Needed) needed += bytes;
    if (event == ArenaEvent::Idle) needed -= bytes;
    ++calls;
  });
  const size_t a = arena.allocate(1000);
  arena.allocate(10);
  EXPECT_EQ(live, arena.live_bytes());
  arena.mark_idle(a, 1000);
  arena.mark_needed(a, 1000);
  EXPECT_EQ(needed, 0u);
  arena.release(a, 1000);
  EXPECT_EQ(live, 256u);
  EXPECT_EQ(calls, 5u);
}

TEST(Arena, AllocationsNeverOverlap) {
  std::mt19937_64 rng(1);
  Arena arena(nullptr, 64 << 10);
  std::map<size_t, size_t> live;  // offset -> requested bytes
  size_t sum = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!live.empty() && rng() % 2) {
      const auto at = std::next(live.begin(), static_cast<long>(rng() % live.size()));
      arena.release(at->first, at->second);
      sum -= (at->second + 255) / 256 * 256;
      live.erase(at);
    } else if (live.size() < 40) {
      const size_t bytes = 1 + rng() % 1500;
      const size_t offset = arena.allocate(bytes);
      const auto next = live.lower_bound(offset);
      EXPECT_TRUE(next == live.end() || offset + bytes <= next->first);
      EXPECT_TRUE(next == live.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= offset);
      live[offset] = bytes;
      sum += (bytes + 255) / 256 * 256;
    }
    ASSERT_EQ(arena.live_bytes(), sum);
  }
  for (const auto& [offset, bytes] : live) arena.release(offset, bytes);
  EXPECT_EQ(arena.allocate(64 << 10), 0u);
}

}  // namespace
}  // namespace ebb
