// Blocks of a device that pretends: only its copies know what lies where.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "device/device.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr size_t kBlock = 8192;

class PretendedBlocks : public testing::Test {
 protected:
  void write(std::byte* to, int mark, size_t bytes = kBlock) {
    std::fill_n(home.data(), bytes, static_cast<std::byte>(mark));
    load->copy(to, home.data(), bytes, CopyKind::Load);
    load->synchronize();
  }
  std::vector<int> read(std::byte* from, size_t bytes = kBlock) {
    auto store = device->create_stream(StreamRole::Store);  // one that failed would stay so
    store->copy(home.data(), from, bytes, CopyKind::Store);
    store->synchronize();
    std::vector<int> marks;
    for (size_t i = 0; i < bytes; ++i) {
      const int mark = static_cast<int>(home.data()[i]);
      if (marks.empty() || marks.back() != mark) marks.push_back(mark);
    }
    return marks;
  }
  using Marks = std::vector<int>;

  std::unique_ptr<Device> device = create_device(
      {.memory_bytes = 4 * kBlock, .num_threads = 1, .pretend = ComputeRates{.flops_per_s = 1e12}});
  Buffer home = device->allocate(MemoryKind::Pinned, 4 * kBlock, "home");
  std::unique_ptr<Blocks> blocks = device->create_blocks(kBlock, 3);
  std::byte* range = blocks->reserve(3 * kBlock);
  std::unique_ptr<Stream> load = device->create_stream(StreamRole::Load);
};

TEST_F(PretendedBlocks, CopiesFollowThem) {
  blocks->map(0, range, *load);
  write(range, 1);
  blocks->map(1, range + kBlock, *load);
  write(range + kBlock, 2);
  blocks->map(0, range + 2 * kBlock, *load);
  EXPECT_EQ(read(range + 2 * kBlock), Marks{1});
  EXPECT_TRUE(blocks->lies_at(0, range) && blocks->lies_at(0, range + 2 * kBlock));
  write(range, 3);
  EXPECT_EQ(read(range + 2 * kBlock), Marks{3});
  write(range + 2 * kBlock, 1);
  blocks->map(0, range + kBlock, *load);  // displaces the other
  EXPECT_FALSE(blocks->lies_at(1, range + kBlock));
  EXPECT_EQ(read(range + kBlock), Marks{1});
  blocks->map(1, range, *load);
  EXPECT_EQ(read(range), Marks{2});
  EXPECT_EQ(read(range + kBlock), Marks{1});
  EXPECT_EQ(read(range + 5, 100), Marks{2});
}

TEST_F(PretendedBlocks, ACopyMayTakeMoreThanOne) {
  for (uint32_t i = 0; i < 3; ++i) {
    blocks->map(i, range + (2 - i) * kBlock, *load);
    write(range + (2 - i) * kBlock, static_cast<int>(i));
  }
  EXPECT_EQ(read(range + kBlock / 2, 2 * kBlock), (Marks{2, 1, 0}));
  write(range + kBlock - 100, 7, kBlock + 200);
  EXPECT_EQ(read(range, 3 * kBlock), (Marks{2, 7, 0}));
  EXPECT_EQ(read(range + kBlock - 101, 101), (Marks{2, 7}));
}

TEST_F(PretendedBlocks, ACopyWhereThereIsNoneFails) {
  blocks->map(1, range + kBlock, *load);
  blocks->map(0, range + 2 * kBlock, *load);
  EXPECT_THROW(read(range), LogicError);
  EXPECT_THROW(read(range + kBlock - 1), LogicError);
  EXPECT_NO_THROW(read(range + kBlock, 2 * kBlock));
}

TEST_F(PretendedBlocks, RefusesWhatIsNoPlace) {
  EXPECT_THROW(device->create_blocks(4096 + 64, 1), LogicError);
  EXPECT_THROW(device->create_blocks(0, 1), LogicError);
  EXPECT_THROW(blocks->map(3, range, *load), LogicError);
  EXPECT_THROW(blocks->map(0, range + 4096, *load), LogicError);
  EXPECT_THROW(blocks->map(0, range + 3 * kBlock, *load), LogicError);
  EXPECT_THROW(blocks->map(0, range - kBlock, *load), LogicError);
}

TEST_F(PretendedBlocks, CountAgainstTheBudget) {
  EXPECT_EQ(device->used_bytes(), 3 * kBlock);
  EXPECT_THROW(device->create_blocks(kBlock, 2), OutOfMemory);
  blocks.reset();
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_EQ(device->create_blocks(kBlock, 4)->num_blocks(), 4u);
}

TEST_F(PretendedBlocks, RangesOfOthersAreTheirOwn) {
  auto others = device->create_blocks(kBlock / 2, 1);
  std::byte* const other = others->reserve(1);
  blocks->map(0, range, *load);
  others->map(0, other, *load);
  write(range, 1);
  write(other, 2, kBlock / 2);
  EXPECT_EQ(read(range), Marks{1});
  EXPECT_EQ(read(other, kBlock / 2), Marks{2});
  others.reset();
  EXPECT_EQ(read(range), Marks{1});
}

using PretendedBlocksDeathTest = PretendedBlocks;

TEST_F(PretendedBlocksDeathTest, WhateverElseTouchesThemFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  blocks->map(0, range, *load);
  const volatile std::byte* const at = range;
  EXPECT_DEATH((void)at[0], "");
}

}  // namespace
}  // namespace ebb
