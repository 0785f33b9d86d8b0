#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/dtype.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr size_t kPage = 4096;

void write_mark(std::byte* at, size_t bytes, uint64_t mark) {
  for (size_t i = 0; i < bytes; i += kPage / 2) std::memcpy(at + i, &mark, sizeof mark), ++mark;
}

bool has_mark(const std::byte* at, size_t bytes, uint64_t mark) {
  for (size_t i = 0; i < bytes; i += kPage / 2, ++mark) {
    if (std::memcmp(at + i, &mark, sizeof mark) != 0) return false;
  }
  return true;
}

TEST(HostBlocks, RoundsRangesUpToBlocks) {
  auto device = create_device({.profile = {.num_threads = 1}});
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(8 * kPage, 2);
  EXPECT_EQ(blocks->block_bytes(), 8 * kPage);
  EXPECT_EQ(blocks->num_blocks(), 2u);
  std::byte* range = blocks->reserve(8 * kPage + 1);
  blocks->map(0, range, *stream);
  blocks->map(1, range + 8 * kPage, *stream);
  range[16 * kPage - 1] = std::byte{1};
}

TEST(HostBlocks, RejectsInvalidSizesAndAddresses) {
  auto device = create_device({.profile = {.num_threads = 1}});
  EXPECT_THROW(device->create_blocks(kPage + 64, 2), LogicError);
  EXPECT_THROW(device->create_blocks(0, 2), LogicError);
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(2 * kPage, 2);
  std::byte* range = blocks->reserve(4 * kPage);
  EXPECT_THROW(blocks->map(2, range, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range + kPage, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range + 4 * kPage, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range - 2 * kPage, *stream), LogicError);
  EXPECT_EQ(device->used_bytes(), 4 * kPage);
}

// The content of each block moves with the block, also when the block displaces another.
void move_at_random(size_t block_bytes, uint32_t num_blocks, size_t num_places, int num_moves) {
  auto device = create_device({.profile = {.num_threads = 1}});
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(block_bytes, num_blocks);
  std::byte* ranges[2] = {blocks->reserve(num_places * block_bytes),
                          blocks->reserve(num_places * block_bytes)};
  std::vector<int> occupants(2 * num_places, -1);
  const auto address = [&](size_t place) {
    return ranges[place / num_places] + place % num_places * block_bytes;
  };
  const auto mark = [](int block) { return uint64_t{1000} * 1000 * 1000 * (block + 1); };
  std::vector<bool> marked(num_blocks);
  std::mt19937 random(1);
  for (int i = 0; i < num_moves; ++i) {
    const int block = static_cast<int>(random() % num_blocks);
    const size_t place = random() % occupants.size();
    blocks->map(static_cast<uint32_t>(block), address(place), *stream);
    for (int& occupant : occupants) occupant = occupant == block ? -1 : occupant;
    occupants[place] = block;
    if (!marked[block]) write_mark(address(place), block_bytes, mark(block));
    marked[block] = true;
    for (size_t p = 0; p < occupants.size(); ++p) {
      if (occupants[p] < 0) continue;
      ASSERT_TRUE(has_mark(address(p), block_bytes, mark(occupants[p]))) << "move " << i;
    }
  }
}

TEST(HostBlocks, ContentSurvivesMoves) { move_at_random(4 * kPage, 5, 4, 2000); }
TEST(HostBlocks, ContentSurvivesMovesOfOnePage) { move_at_random(kPage, 3, 2, 1000); }
TEST(HostBlocks, ContentSurvivesMovesOfLargeBlocks) { move_at_random(size_t{2} << 20, 3, 3, 100); }
TEST(HostBlocks, ContentSurvivesMovesOfOddBlocks) {
  move_at_random((size_t{2} << 20) + kPage, 3, 3, 100);
}

// An address range without a block must stay reserved. Otherwise an mmap of another thread could
// get the range, and a later block would overwrite it. For this size there is no other gap.
TEST(HostBlocks, OtherThreadsMayMapMemory) {
  constexpr size_t kBytes = size_t{8} << 20;
#if defined(__SANITIZE_THREAD__)
  constexpr uint32_t kMoves = 50;  // the sanitizer processes each word of a move
#else
  constexpr uint32_t kMoves = 5000;
#endif
  auto device = create_device({.profile = {.num_threads = 1}});
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(kBytes, 1);
  std::byte* range = blocks->reserve(2 * kBytes);
  std::atomic<bool> stop = false;
  std::atomic<int> num_lost = 0;
  std::thread other([&] {
    for (uint64_t mark = 1; !stop; ++mark) {
      void* memory =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      write_mark(static_cast<std::byte*>(memory), kPage, mark);
      std::this_thread::yield();
      if (!has_mark(static_cast<std::byte*>(memory), kPage, mark)) ++num_lost;
      munmap(memory, kBytes);
    }
  });
  for (uint32_t i = 0; i < kMoves; ++i) blocks->map(0, range + (i % 2) * kBytes, *stream);
  stop = true;
  other.join();
  EXPECT_EQ(num_lost, 0);
}

TEST(HostBlocks, MovedBlocksArePoisoned) {
  auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(kPage, 1);
  std::byte* range = blocks->reserve(2 * kPage);
  for (std::byte* place : {range, range + kPage, range + kPage}) {
    blocks->map(0, place, *stream);
    float value = 0;
    for (size_t i = 0; i < kPage; i += sizeof value) {
      std::memcpy(&value, place + i, sizeof value);
      ASSERT_TRUE(std::isnan(value));
    }
    uint16_t bits = 0;
    std::memcpy(&bits, place + kPage - 2, sizeof bits);
    EXPECT_TRUE(std::isnan(float(BF16::from_bits(bits))));
    std::memset(place, 0, kPage);
  }
}

TEST(HostBlocksDeathTest, AddressesWithoutABlockFault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto device = create_device({.profile = {.num_threads = 1}});
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(2 * kPage, 2);
  volatile std::byte* range = blocks->reserve(6 * kPage);
  EXPECT_DEATH((void)range[0], "");  // never mapped
  blocks->map(0, const_cast<std::byte*>(range), *stream);
  range[0] = std::byte{1};
  blocks->map(0, const_cast<std::byte*>(range) + 2 * kPage, *stream);
  EXPECT_DEATH((void)range[0], "");  // the block was moved
  EXPECT_DEATH(range[2 * kPage - 1] = std::byte{1}, "");
  EXPECT_TRUE(range[2 * kPage] == std::byte{1});
}

}  // namespace
}  // namespace ebb
