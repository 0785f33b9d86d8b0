#include <gtest/gtest.h>

#include <memory>

#include "device/errors.h"
#include "device/kernels.h"
#include "device/sim/sim_device.h"

namespace ebb {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(SimDevice, AllocationsTakeNoMemory) {
  auto device = create_device({.profile = {.kind = DeviceKind::Sim}});
  Buffer a = device->allocate(MemoryKind::Device, 1000 * kGiB, "a");
  Buffer b = device->allocate(MemoryKind::Pinned, 1000 * kGiB, "b");
  EXPECT_GE(b.data(), a.data() + 1000 * kGiB);
  EXPECT_EQ(device->used_bytes(), 1000 * kGiB);
  const auto stream = device->create_stream(StreamKind::Load);
  auto blocks = device->create_blocks(64 << 20, 100);
  std::byte* range = blocks->reserve(500 * kGiB);
  EXPECT_GE(range, b.data() + 1000 * kGiB);
  blocks->map(99, range, *stream);
  EXPECT_THROW(blocks->map(100, range, *stream), LogicError);
  a = Buffer();
  EXPECT_EQ(device->used_bytes(), size_t{100} * (64 << 20));
  EXPECT_EQ(device->peak_bytes(), 1000 * kGiB + size_t{100} * (64 << 20));
  EXPECT_EQ(device->num_allocations(), 3u);
}

TEST(SimDevice, BudgetIsExact) {
  SimDevice device({.profile = {.kind = DeviceKind::Sim}, .memory_bytes = 100});
  Buffer a = device.allocate(MemoryKind::Device, 60, "a");
  device.reserve_workspace(40);
  EXPECT_THROW(device.allocate(MemoryKind::Device, 1, "b"), OutOfMemory);
  EXPECT_THROW(device.reserve_workspace(41), OutOfMemory);
  EXPECT_EQ(device.used_bytes(), 100u);
}

TEST(SimDevice, AddsCostsAndRunsNothing) {
  SimDevice device;
  auto stream = device.create_stream(StreamKind::Compute);
  bool ran = false;
  stream->submit({.flops = 100, .bytes = 10, .workspace_bytes = 7}, [&ran] { ran = true; });
  stream->submit({.flops = 200, .bytes = 20, .workspace_bytes = 5}, [&ran] { ran = true; });
  const Cost call = device.take();
  EXPECT_EQ(call.flops, 300);
  EXPECT_EQ(call.bytes, 30);
  EXPECT_EQ(call.workspace_bytes, 7u);
  stream->submit({.flops = 1}, [&ran] { ran = true; });
  stream->copy(nullptr, nullptr, 1000, CopyKind::Load);
  EXPECT_EQ(device.take().flops, 1);
  EXPECT_EQ(device.take().flops, 0);
  EXPECT_EQ(device.total().flops, 301);
  EXPECT_EQ(device.num_calls(), 3u);
  EXPECT_EQ(stream->stats().num_operations, 4u);
  EXPECT_EQ(stream->stats().copied_bytes, 1000u);
  stream->synchronize();
  EXPECT_FALSE(ran);
  EXPECT_EQ(device.now_s(), 0);
}

TEST(SimDevice, KernelsOnlyAddTheirCost) {
  SimDevice device;
  auto stream = device.create_stream(StreamKind::Compute);
  Buffer memory = device.allocate(MemoryKind::Device, kGiB, "tensors");
  const Tensor x{memory.data(), DType::F32, {4, 8}}, w{memory.data() + 4096, DType::F32, {16, 8}},
      y{memory.data() + 8192, DType::F32, {4, 16}};
  device.kernels().submit(*stream, LinearForward{y, x, w, {}});
  EXPECT_EQ(device.total().flops, 2.0 * 4 * 8 * 16);
  EXPECT_GE(device.total().bytes, 4.0 * (4 * 8 + 16 * 8 + 4 * 16));
}

TEST(SimDevice, VirtualTimeFollowsEvents) {
  SimDevice device(
      {.profile = {.kind = DeviceKind::Sim}, .load_bytes_per_s = 100, .store_bytes_per_s = 50});
  device.set_rate(1000, 500);
  auto load = device.create_stream(StreamKind::Load);
  auto compute = device.create_stream(StreamKind::Compute);
  auto loaded = device.create_event(), computed = device.create_event();
  load->copy(nullptr, nullptr, 400, CopyKind::Load);  // 4 s
  load->record(*loaded);
  compute->submit({.flops = 3000, .bytes = 500}, [] {});  // 3 s: bound by arithmetic
  compute->wait(*loaded);
  compute->submit({.flops = 100, .bytes = 1000}, [] {});  // 2 s: bound by memory
  compute->record(*computed);
  load->copy(nullptr, nullptr, 50, CopyKind::Store);  // 1 s
  EXPECT_DOUBLE_EQ(loaded->time_s(), 4);
  EXPECT_DOUBLE_EQ(computed->time_s(), 6);
  EXPECT_DOUBLE_EQ(compute->stats().waiting_s, 1);
  EXPECT_DOUBLE_EQ(compute->stats().busy_s, 5);
  EXPECT_DOUBLE_EQ(load->stats().busy_s, 5);
  EXPECT_DOUBLE_EQ(device.now_s(), 6);
}

TEST(SimDevice, EventsWithoutARecordAreRejected) {
  SimDevice device;
  auto stream = device.create_stream(StreamKind::Compute);
  auto event = device.create_event();
  EXPECT_FALSE(event->done());
  EXPECT_THROW(stream->wait(*event), LogicError);
  EXPECT_THROW(event->synchronize(), LogicError);
  event->signal();
  stream->wait(*event);
  event->synchronize();
  EXPECT_TRUE(event->done());
}

}  // namespace
}  // namespace ebb
