// Emulated compute: a host device that sleeps instead of computing. Durations are checked with the
// times of events, which do not depend on the load of the machine. Wall time has only lower bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "device/device.h"
#include "device/errors.h"
#include "device/kernels.h"
#include "system/clock.h"
#include "tests/device/gate.h"
#include "tests/device/tries.h"

namespace ebb {
namespace {

constexpr double kFlops = 1e9, kBytes = 1e8;

std::unique_ptr<Device> create_emulating_device(double bytes_per_s = kBytes) {
  return create_device(
      {.profile = {.num_threads = 1},
       .memory_bytes = 1 << 20,
       .emulate_compute = ComputeRates{.flops_per_s = kFlops, .bytes_per_s = bytes_per_s}});
}

class EmulatedCompute : public testing::Test {
 protected:
  /// Blocks the compute stream until the gate opens. Then `began` is reached.
  void hold_compute(Gate& gate) {
    host->submit({}, [&gate] { gate.pass(); });
    host->record(*began);
    compute->wait(*began);
  }

  /// The duration of the work that `submit` puts on the compute stream. The work starts after all
  /// of it was submitted, so the stream never waits for this thread.
  template <class Submit>
  double seconds_of(const Submit& submit) {
    Gate gate;
    hold_compute(gate);
    submit();
    compute->record(*ended);
    gate.open();
    ended->synchronize();
    return ended->time_s() - began->time_s();
  }

  std::unique_ptr<Device> device = create_emulating_device();
  std::unique_ptr<Event> began = device->create_event(), ended = device->create_event();
  std::unique_ptr<Stream> host = device->create_stream(StreamKind::Update);
  std::unique_ptr<Stream> compute = device->create_stream(StreamKind::Compute);
};

TEST_F(EmulatedCompute, TheDeviceReportsTheRates) {
  ASSERT_TRUE(device->info().emulate_compute);
  EXPECT_EQ(device->info().emulate_compute->flops_per_s, kFlops);
  EXPECT_EQ(device->info().emulate_compute->bytes_per_s, kBytes);
  EXPECT_FALSE(create_device({.profile = {.num_threads = 1}})->info().emulate_compute);
}

TEST_F(EmulatedCompute, ACallTakesTheLongerOfItsArithmeticAndItsMemoryTraffic) {
  EXPECT_NEAR(seconds_of([&] { compute->submit({.flops = 5e6, .bytes = 1e5}, [] {}); }), 5e-3,
              1e-9);
  EXPECT_NEAR(seconds_of([&] { compute->submit({.flops = 1e6, .bytes = 7e5}, [] {}); }), 7e-3,
              1e-9);
  EXPECT_NEAR(seconds_of([&] { compute->submit({.name = "nothing"}, [] {}); }), 0, 1e-9);
}

TEST_F(EmulatedCompute, ManyShortKernelsTakeTheSumOfTheirTimes) {
  constexpr int kKernels = 900;  // less than the capacity of the ring of a stream
  constexpr double kKernel_s = 20e-6;
  const double begin_s = device->now_s();
  const double seconds = seconds_of([&] {
    for (int i = 0; i < kKernels; ++i) compute->submit({.flops = kKernel_s * kFlops}, [] {});
  });
  EXPECT_NEAR(seconds, kKernels * kKernel_s,
              1e-6);  // with the slack of a timer it would be 3 times as long
  EXPECT_GE(device->now_s() - begin_s, seconds);
  EXPECT_NEAR(compute->stats().busy_s, seconds, 1e-6);
}

TEST_F(EmulatedCompute, AKernelTakesWallTimeButNoProcessorTime) {
  constexpr int kKernels = 150;
  constexpr double kKernel_s = 2e-3;
  EXPECT_TRUE(seen_once([&] {
    const double begin_s = device->now_s(), used_s = process_cpu_s();
    for (int i = 0; i < kKernels; ++i) compute->submit({.flops = kKernel_s * kFlops}, [] {});
    compute->synchronize();
    EXPECT_GE(device->now_s() - begin_s, kKernels * kKernel_s);
    return process_cpu_s() - used_s < 0.2 * kKernels * kKernel_s;
  }));
}

TEST_F(EmulatedCompute, KernelsAndCopiesWithinTheDeviceWriteNothing) {
  Buffer memory = device->allocate(MemoryKind::Device, 4096, "memory");
  const Tensor y{memory.data(), DType::F32, {4, 16}}, x{memory.data() + 1024, DType::F32, {4, 8}},
      w{memory.data() + 2048, DType::F32, {16, 8}};
  std::fill_n(x.as<float>(), 32, 1.0f);
  std::fill_n(w.as<float>(), 128, 1.0f);
  bool ran = false;
  const double seconds = seconds_of([&] {
    device->kernels().submit(*compute, LinearForward{y, x, w, {}});
    compute->copy(y.data, x.data, 64, CopyKind::Within);
    compute->submit({}, [&ran] { ran = true; });
  });
  EXPECT_GE(seconds, (2 * 4 * 16 * 8) / kFlops);
  EXPECT_GE(seconds, 2 * 64 / kBytes);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(std::all_of(y.as<float>(), y.as<float>() + 64, [](float v) { return v == 0; }));
}

TEST_F(EmulatedCompute, CopiesAndUpdatesAreNotEmulated) {
  Buffer pinned = device->allocate(MemoryKind::Pinned, 1000, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, 1000, "device");
  std::fill_n(pinned.data(), 1000, std::byte{7});
  auto load = device->create_stream(StreamKind::Load);
  load->copy(on_device.data(), pinned.data(), 1000, CopyKind::Load);
  load->synchronize();
  EXPECT_EQ(on_device.data()[999], std::byte{7});
  bool ran = false;
  host->submit({.flops = 1e18}, [&ran] { ran = true; });
  host->synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(EmulatedCompute, CopiesAndUpdatesWaitForEmulatedKernels) {
  constexpr double kKernel_s = 0.03;
  Buffer pinned = device->allocate(MemoryKind::Pinned, 64, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, 64, "device");
  auto store = device->create_stream(StreamKind::Store);
  double called_s = 0;
  const double began_s = device->now_s();
  compute->submit({.flops = kKernel_s * kFlops}, [] {});
  compute->record(*began);
  host->wait(*began);
  host->submit({}, [&] { called_s = device->now_s(); });
  store->wait(*began);
  store->copy(pinned.data(), on_device.data(), 64, CopyKind::Store);
  store->record(*ended);
  ended->synchronize();
  const double copied_s = device->now_s();
  host->synchronize();
  EXPECT_GE(called_s, began_s + kKernel_s);
  EXPECT_GE(copied_s, began_s + kKernel_s);
  EXPECT_GE(ended->time_s(), began->time_s());
  EXPECT_GT(store->stats().waiting_s, 0);
}

TEST_F(EmulatedCompute, AWaitingKernelStartsAtTheTimeOfTheEvent) {
  Gate gate;
  hold_compute(gate);
  compute->submit({.flops = 2e-3 * kFlops}, [] {});
  compute->record(*ended);
  EXPECT_FALSE(ended->done());
  EXPECT_EQ(compute->stats().num_operations, 0);
  gate.open();
  ended->synchronize();
  EXPECT_NEAR(ended->time_s() - began->time_s(), 2e-3, 1e-9);
  EXPECT_GT(compute->stats().waiting_s, 0);
  EXPECT_EQ(compute->stats().num_operations, 1);
}

TEST_F(EmulatedCompute, SubmittingToAFullQueueBlocks) {
  constexpr int kKernels = 10000;  // more than the capacity of the queue
  Gate gate;
  hold_compute(gate);
  std::atomic<int> num_submitted = 0;
  std::thread submitting([&] {
    for (int i = 0; i < kKernels; ++i, ++num_submitted) {
      compute->submit({.flops = 1e-6 * kFlops}, [] {});
    }
    compute->record(*ended);
  });
  while (num_submitted < 1000) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(num_submitted, kKernels);
  gate.open();
  submitting.join();
  compute->synchronize();
  EXPECT_EQ(compute->stats().num_operations, kKernels);
}

TEST_F(EmulatedCompute, TheDestructorOfAStreamRunsQueuedWork) {
  Gate gate;
  hold_compute(gate);
  compute->submit({.flops = 1e-3 * kFlops}, [] {});
  compute->record(*ended);
  std::atomic<bool> is_destroyed = false;
  std::thread destroying([&] {
    compute.reset();
    is_destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_destroyed);
  gate.open();
  destroying.join();
  EXPECT_NEAR(ended->time_s() - began->time_s(), 1e-3, 1e-9);
}

TEST_F(EmulatedCompute, AfterAnErrorWorkIsDroppedAndEventsAreReached) {
  host->submit({}, [] { throw DeviceError("broken"); });
  host->record(*began);
  compute->wait(*began);
  compute->submit({.flops = 1e3 * kFlops}, [] {});
  compute->record(*ended);
  EXPECT_THROW(ended->synchronize(), DeviceError);
  EXPECT_THROW(compute->synchronize(), DeviceError);
  EXPECT_EQ(compute->stats().num_operations, 0);
}

TEST(EmulatedComputeErrors, AStreamWithAnErrorDoesNotWait) {
  const auto device =
      create_device({.profile = {.num_threads = 1},
                     .memory_bytes = 1 << 20,
                     .emulate_compute = ComputeRates{.flops_per_s = kFlops},
                     .fault = [](FaultSite site) { return site == FaultSite::Copy; }});
  const auto late = device->create_event(), ended = device->create_event();
  const auto host = device->create_stream(StreamKind::Update);
  const auto compute = device->create_stream(StreamKind::Compute);
  Gate gate;
  host->submit({}, [&gate] { gate.pass(); });
  host->record(*late);
  compute->copy(nullptr, nullptr, 64, CopyKind::Within);
  compute->wait(*late);
  compute->record(*ended);
  EXPECT_THROW(ended->synchronize(), DeviceError);  // although the gate is closed
  gate.open();
  EXPECT_THROW(compute->synchronize(), DeviceError);
}

TEST(EmulatedComputeCopies, CopiesOverTheLinkMoveBytes) {
  const auto device = create_device({.profile = {.num_threads = 1},
                                     .memory_bytes = 1 << 20,
                                     .load_bytes_per_s = 1e6,
                                     .store_bytes_per_s = 5e5,
                                     .emulate_compute = ComputeRates{.flops_per_s = kFlops}});
  Buffer memory = device->allocate(MemoryKind::Device, 2000, "memory");
  Buffer pinned = device->allocate(MemoryKind::Pinned, 1000, "pinned");
  std::fill_n(pinned.data(), 1000, std::byte{7});
  const auto compute = device->create_stream(StreamKind::Compute);
  compute->copy(memory.data(), pinned.data(), 1000, CopyKind::Load);
  compute->copy(pinned.data(), memory.data() + 1000, 1000, CopyKind::Store);
  compute->synchronize();
  EXPECT_NEAR(compute->stats().busy_s, 3e-3, 1e-9);
  EXPECT_EQ(compute->stats().copied_bytes, 2000);
  EXPECT_EQ(memory.data()[999], std::byte{7});
  EXPECT_EQ(pinned.data()[0], std::byte{0});
}

TEST(EmulatedComputeFaults, AKernelOrACopyMayFail) {
  for (const FaultSite failing : {FaultSite::Launch, FaultSite::Copy}) {
    SCOPED_TRACE(static_cast<int>(failing));
    const auto device = create_device({.profile = {.num_threads = 1},
                                       .memory_bytes = 1 << 20,
                                       .emulate_compute = ComputeRates{.flops_per_s = kFlops},
                                       .fault = [=](FaultSite site) { return site == failing; }});
    Buffer memory = device->allocate(MemoryKind::Device, 128, "memory");
    const auto compute = device->create_stream(StreamKind::Compute);
    compute->copy(memory.data(), memory.data() + 64, 64, CopyKind::Within);
    compute->submit({.name = "kernel"}, [] {});
    EXPECT_THROW(compute->synchronize(), DeviceError);
  }
}

TEST_F(EmulatedCompute, TheBudgetIsExact) {
  Buffer most = device->allocate(MemoryKind::Device, (1 << 20) - 1, "most");
  EXPECT_THROW(device->allocate(MemoryKind::Device, 2, "two bytes"), OutOfMemory);
  EXPECT_THROW(device->reserve_workspace(2), OutOfMemory);
}

TEST(EmulatedComputeOptions, InvalidOptionsAreRejected) {
  EXPECT_THROW(create_device({.emulate_compute = ComputeRates{}}), ConfigError);
  EXPECT_THROW(create_device({.emulate_compute = ComputeRates{.flops_per_s = -1}}), ConfigError);
  EXPECT_THROW(create_emulating_device(-1), ConfigError);
  const ComputeRates rates{.flops_per_s = kFlops};
  EXPECT_THROW(create_device({.profile = {.kind = DeviceKind::Sim}, .emulate_compute = rates}),
               ConfigError);
  EXPECT_THROW(create_device({.profile = {.kind = DeviceKind::Cuda}, .emulate_compute = rates}),
               ConfigError);
  EXPECT_THROW(create_device({.emulate_compute = rates, .poison = true}), ConfigError);
}

}  // namespace
}  // namespace ebb
