#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "device/backends.h"
#include "device/device.h"
#include "device/errors.h"
#include "system/cores.h"

namespace ebb::tests_of_host_device {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(HostDevice, ReportsItsProperties) {
  auto device = create_device(
      {.profile = {.num_threads = 2}, .memory_bytes = 5 * kMiB, .load_bytes_per_s = 1e9});
  EXPECT_EQ(device->info().profile.kind, DeviceKind::Host);
  EXPECT_TRUE(device->info().name.ends_with(", 2 threads")) << device->info().name;
  EXPECT_EQ(device->info().memory_bytes, 5 * kMiB);
  EXPECT_EQ(device->info().profile.num_threads, 2);
  EXPECT_EQ(device->info().load_bytes_per_s, 1e9);
  EXPECT_EQ(create_device()->info().profile.num_threads, num_usable_cores());
}

TEST(HostDevice, RejectsInvalidOptions) {
  EXPECT_THROW(create_device({.profile = {.num_threads = -1}}), ConfigError);
  EXPECT_THROW(create_device({.load_bytes_per_s = -1}), ConfigError);
  EXPECT_THROW(create_device({.store_bytes_per_s = -1}), ConfigError);
}

TEST(HostDevice, BudgetIsExact) {
  auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 3 * kMiB});
  Buffer large = device->allocate(MemoryKind::Device, 2 * kMiB + 1, "large");
  Buffer rest = device->allocate(MemoryKind::Device, kMiB - 1, "rest");
  EXPECT_EQ(device->used_bytes(), 3 * kMiB);
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
  EXPECT_THROW(device->allocate(MemoryKind::Device, kMiB, "a byte more"), OutOfMemory);
  EXPECT_EQ(device->used_bytes(), 2 * kMiB + 1);
  EXPECT_EQ(device->peak_bytes(), 3 * kMiB);
  EXPECT_EQ(device->num_allocations(), 2u);
}

TEST(HostDevice, HostMemoryIsOutsideTheBudget) {
  auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 0});
  Buffer pinned = device->allocate(MemoryKind::Pinned, 2 * kMiB, "pinned");
  Buffer pageable = device->allocate(MemoryKind::Pageable, 100, "pageable");
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_EQ(device->num_allocations(), 2u);
  EXPECT_THROW(device->allocate(MemoryKind::Device, 1, "device"), OutOfMemory);
}

TEST(HostDevice, BlocksAndWorkspaceShareTheBudget) {
  auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 10 * 4096});
  auto blocks = device->create_blocks(4096, 6);
  EXPECT_EQ(device->used_bytes(), 6u * 4096);
  EXPECT_THROW(device->create_blocks(4096, 5), OutOfMemory);
  EXPECT_THROW(device->reserve_workspace(4 * 4096 + 1), OutOfMemory);
  device->reserve_workspace(1000);
  device->reserve_workspace(500);
  EXPECT_EQ(device->used_bytes(), 6u * 4096 + 1000);
  device->reserve_workspace(4 * 4096);
  EXPECT_EQ(device->used_bytes(), 10u * 4096);
  blocks.reset();
  EXPECT_EQ(device->used_bytes(), 4u * 4096);
  EXPECT_EQ(device->peak_bytes(), 10u * 4096);
  EXPECT_EQ(device->num_allocations(), 3u);
}

TEST(HostDevice, MemoryIsZeroAndAligned) {
  auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, kMiB - 1, kMiB, 3 * kMiB + 5}) {
    for (int again = 0; again < 2;
         ++again) {  // the second buffer may reuse the memory of the first
      Buffer buffer = device->allocate(MemoryKind::Device, bytes, "test");
      ASSERT_TRUE(buffer);
      EXPECT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
      EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes,
                              [](std::byte b) { return b == std::byte{0}; }));
      std::fill_n(buffer.data(), bytes, std::byte{0xab});
    }
  }
}

TEST(HostDevice, BuffersMove) {
  auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 200});
  Buffer a = device->allocate(MemoryKind::Device, 100, "a");
  std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_FALSE(a);
  EXPECT_EQ(a.bytes(), 0u);
  Buffer& alias = b;
  b = std::move(alias);
  EXPECT_EQ(b.data(), data);
  b = device->allocate(MemoryKind::Device, 50, "b");
  EXPECT_EQ(device->used_bytes(), 50u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// With a sanitizer the read would be reported.
TEST(HostDevice, FreedMemoryIsPoisoned) {
  auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  Buffer buffer = device->allocate(MemoryKind::Device, 64 * 1024, "test");
  const volatile uint16_t* data = reinterpret_cast<const uint16_t*>(buffer.data());
  buffer = Buffer();
  EXPECT_EQ(data[1000], 0x7fa1);  // the allocator overwrites only the begin of freed memory
}
#endif

TEST(HostDeviceDeathTest, LargeFreedMemoryFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto device = create_device({.profile = {.num_threads = 1}});
  Buffer buffer = device->allocate(MemoryKind::Device, 4 * kMiB, "test");
  volatile std::byte* data = buffer.data();
  EXPECT_DEATH(
      {
        buffer = Buffer();
        data[0] = std::byte{1};
      },
      "");
}

TEST(HostDevice, KernelsRunOnTheStream) {
  auto device = create_device({.profile = {.num_threads = 2}});
  device->reserve_workspace(kMiB);
  auto stream = device->create_stream(StreamKind::Compute);
  Buffer buffer = device->allocate(MemoryKind::Device, 400, "test");
  Tensor y{buffer.data(), DType::F32, {100}};
  std::ranges::fill(y.span<float>(), 3.0f);
  device->kernels().submit(*stream, FillZero{y});
  stream->synchronize();
  EXPECT_TRUE(std::ranges::all_of(y.span<float>(), [](float v) { return v == 0; }));
}

}  // namespace
}  // namespace ebb::tests_of_host_device
