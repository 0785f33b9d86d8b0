// Memory budget, buffers and blocks of each device that computes. The tests read device memory
// through copies, because a GPU needs them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/errors.h"
#include "tests/device/backends.h"

namespace ebb {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class DeviceMemory : public test::OnDevice {};

TEST_P(DeviceMemory, ReportsItsProperties) {
  const auto device = make_device({.profile = {.num_threads = 2}, .memory_bytes = 5 * kMiB});
  EXPECT_EQ(device->info().profile.kind, GetParam());
  EXPECT_FALSE(device->info().name.empty());
  EXPECT_EQ(device->info().memory_bytes, 5 * kMiB);
  EXPECT_EQ(device->info().profile.num_threads, 2);
}

TEST_P(DeviceMemory, BudgetIsExact) {
  const auto device = make_device({.memory_bytes = 3 * kMiB});
  Buffer large = device->allocate(MemoryKind::Device, 2 * kMiB + 1, "large");
  Buffer rest = device->allocate(MemoryKind::Device, kMiB - 1, "rest");
  try {
    device->allocate(MemoryKind::Device, 1, "one byte");
    FAIL() << "the budget is full";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.kind, "device");
    EXPECT_EQ(error.requested, 1u);
    EXPECT_EQ(error.used, 3 * kMiB);
    EXPECT_EQ(error.limit, 3 * kMiB);
    EXPECT_EQ(error.tag, "one byte");
  }
  rest = Buffer();
  EXPECT_EQ(device->used_bytes(), 2 * kMiB + 1);
  EXPECT_EQ(device->peak_bytes(), 3 * kMiB);
  EXPECT_EQ(device->num_allocations(), 2u);
}

TEST_P(DeviceMemory, HostMemoryIsOutsideTheBudget) {
  const auto device = make_device({.memory_bytes = 0});
  Buffer pinned = device->allocate(MemoryKind::Pinned, 2 * kMiB + 1, "pinned");
  Buffer pageable = device->allocate(MemoryKind::Pageable, 100, "pageable");
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_THROW(device->allocate(MemoryKind::Device, 1, "device"), OutOfMemory);
  for (const Buffer* buffer : {&pinned, &pageable}) {
    EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + buffer->bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_P(DeviceMemory, BlocksAndWorkspaceShareTheBudget) {
  const size_t g = granularity();
  const auto device = make_device({.memory_bytes = 10 * g});
  auto blocks = device->create_blocks(g, 6);
  EXPECT_EQ(device->used_bytes(), 6 * g);
  EXPECT_THROW(device->create_blocks(g, 5), OutOfMemory);
  EXPECT_THROW(device->reserve_workspace(4 * g + 1), OutOfMemory);
  device->reserve_workspace(1000);
  device->reserve_workspace(500);
  EXPECT_EQ(device->used_bytes(), 6 * g + 1000);
  device->reserve_workspace(4 * g);
  EXPECT_EQ(device->used_bytes(), 10 * g);
  blocks.reset();
  EXPECT_EQ(device->used_bytes(), 4 * g);
  EXPECT_EQ(device->num_allocations(), 3u);
}

/// A copy of device memory.
std::vector<std::byte> read(Device& device, Stream& store, const std::byte* from, size_t bytes) {
  Buffer pinned = device.allocate(MemoryKind::Pinned, bytes, "read");
  store.copy(pinned.data(), from, bytes, CopyKind::Store);
  store.synchronize();
  return {pinned.data(), pinned.data() + bytes};
}

void write(Device& device, Stream& load, std::byte* to, size_t bytes, uint32_t seed) {
  Buffer pinned = device.allocate(MemoryKind::Pinned, bytes, "write");
  std::mt19937 random(seed);
  for (size_t i = 0; i < bytes; i += 997) pinned.data()[i] = static_cast<std::byte>(random());
  load.copy(to, pinned.data(), bytes, CopyKind::Load);
  load.synchronize();
}

TEST_P(DeviceMemory, DeviceMemoryIsZeroAndAligned) {
  const auto device = make_device({.poison = true});
  const auto store = device->create_stream(StreamKind::Store);
  for (const size_t bytes : {size_t{1}, size_t{4095}, kMiB - 1, 3 * kMiB + 5}) {
    for (int again = 0; again < 2;
         ++again) {  // the second buffer may reuse the memory of the first
      Buffer buffer = device->allocate(MemoryKind::Device, bytes, "test");
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
      EXPECT_EQ(read(*device, *store, buffer.data(), bytes), std::vector<std::byte>(bytes));
      write(*device, *store, buffer.data(), bytes, 1);
    }
  }
}

TEST_P(DeviceMemory, BlocksRejectInvalidSizesAndAddresses) {
  const size_t g = granularity();
  const auto device = make_device();
  EXPECT_THROW(device->create_blocks(g + 64, 2), Error);
  EXPECT_THROW(device->create_blocks(0, 2), LogicError);
  const auto stream = device->create_stream(StreamKind::Load);
  const auto blocks = device->create_blocks(2 * g, 2);
  std::byte* range = blocks->reserve(2 * g + 1);
  blocks->map(1, range + 2 * g, *stream);  // rounded up to whole blocks
  EXPECT_THROW(blocks->map(2, range, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range + g, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range + 4 * g, *stream), LogicError);
  EXPECT_THROW(blocks->map(0, range - 2 * g, *stream), LogicError);
  EXPECT_EQ(device->used_bytes(), 4 * g);
}

// A block is only at the address where it was mapped last, and it displaces the block there.
TEST_P(DeviceMemory, BlocksMove) {
  constexpr uint32_t kBlocks = 3;
  const size_t g = granularity();
  const auto device = make_device();
  const auto stream = device->create_stream(StreamKind::Load);
  const auto blocks = device->create_blocks(g, kBlocks);
  std::byte* ranges[2] = {blocks->reserve(2 * g), blocks->reserve(3 * g)};
  std::byte* places[5] = {ranges[0], ranges[0] + g, ranges[1], ranges[1] + g, ranges[1] + 2 * g};
  std::vector<int> place_of(kBlocks, -1), seeds(kBlocks, 0);
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const auto block = static_cast<uint32_t>(random() % kBlocks);
    const int place = static_cast<int>(random() % 5);
    blocks->map(block, places[place], *stream);
    std::ranges::replace(place_of, place, -1);
    place_of[block] = place;
    seeds[block] = i;
    write(*device, *stream, places[place], g, static_cast<uint32_t>(i));
    for (uint32_t other = 0; other < kBlocks; ++other) {
      if (place_of[other] < 0) continue;
      std::mt19937 written(static_cast<uint32_t>(seeds[other]));
      const auto bytes = read(*device, *stream, places[place_of[other]], g);
      for (size_t at = 0; at < g; at += 997) {
        ASSERT_EQ(bytes[at], static_cast<std::byte>(written())) << "move " << i;
      }
    }
  }
}

// A GPU may keep the old mapping of a block until another block is mapped there.
TEST_P(DeviceMemory, BlocksMayKeepTheirAddresses) {
  const size_t g = granularity();
  const auto device = make_device();
  const auto stream = device->create_stream(StreamKind::Load);
  const auto blocks = device->create_blocks(g, 2);
  std::byte* const first = blocks->reserve(2 * g);
  std::byte* const second = first + g;
  const bool keep = blocks->keep_addresses();
  EXPECT_EQ(keep, !on_host());
  EXPECT_FALSE(blocks->lies_at(0, first));
  blocks->map(0, first, *stream);
  blocks->map(0, second, *stream);
  EXPECT_EQ(blocks->lies_at(0, first), keep);
  EXPECT_EQ(blocks->lies_at(0, second), keep);
  EXPECT_FALSE(blocks->lies_at(1, first));
  write(*device, *stream, second, g, 1);
  if (keep) {
    EXPECT_EQ(read(*device, *stream, first, g), read(*device, *stream, second, g));
  }
  blocks->map(1, first, *stream);
  EXPECT_FALSE(blocks->lies_at(0, first));
  EXPECT_EQ(blocks->lies_at(1, first), keep);
  write(*device, *stream, first, g, 2);
  EXPECT_NE(read(*device, *stream, first, g), read(*device, *stream, second, g));
}

TEST_P(DeviceMemory, ATensorMaySpanTwoBlocks) {
  const size_t g = granularity();
  const auto device = make_device();
  const auto stream = device->create_stream(StreamKind::Load);
  const auto blocks = device->create_blocks(g, 2);
  std::byte* range = blocks->reserve(2 * g);
  blocks->map(1, range, *stream);
  blocks->map(0, range + g, *stream);
  write(*device, *stream, range + g / 2, g, 3);
  std::mt19937 written(3);
  const auto bytes = read(*device, *stream, range + g / 2, g);
  for (size_t at = 0; at < g; at += 997) ASSERT_EQ(bytes[at], static_cast<std::byte>(written()));
}

TEST_P(DeviceMemory, MovedBlocksArePoisoned) {
  const size_t g = granularity();
  const auto device = make_device({.poison = true});
  const auto store = device->create_stream(StreamKind::Store);
  const auto blocks = device->create_blocks(g, 1);
  std::byte* range = blocks->reserve(2 * g);
  for (std::byte* place : {range, range + g, range + g}) {
    blocks->map(0, place, *store);
    const auto bytes = read(*device, *store, place, g);
    for (size_t at = 0; at < g; at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      ASSERT_TRUE(std::isnan(value));
    }
    write(*device, *store, place, g, 5);
  }
}

EBB_ON_EVERY_DEVICE(DeviceMemory);

}  // namespace
}  // namespace ebb
