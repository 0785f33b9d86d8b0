// Home memory of the CUDA backend: pinned completely, or as far as possible, with copies through a
// ring for the other part.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "device/driver_memory.h"
#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/error_of.h"
#include "tests/trainer/cases.h"

namespace ebb::test::tests_of_home_memory {
namespace {

constexpr size_t kPage = 4096, kMiB = size_t{1} << 20;

class HomeMemoryTest : public testing::Test {
 protected:
  ~HomeMemoryTest() override { emulation::settings() = {}; }

  static std::unique_ptr<Device> device(size_t pinned_bytes = SIZE_MAX) {
    return create_device(
        {.profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = pinned_bytes}});
  }
  /// A device whose driver registers at most `piece_bytes` in one call. Real drivers refuse half a
  /// TiB.
  static std::unique_ptr<Device> device_of_pieces(size_t piece_bytes) {
    emulation::settings().pinnable_at_once = piece_bytes;
    return create_device({.profile = {.kind = DeviceKind::Cuda, .num_threads = 1},
                          .pinned_piece_bytes = piece_bytes});
  }
};

std::span<uint64_t> words_of(const Buffer& buffer) {
  return {reinterpret_cast<uint64_t*>(buffer.data()), buffer.bytes() / sizeof(uint64_t)};
}
uint64_t word_at(size_t i) { return i * 0x9e3779b97f4a7c15u; }

/// Copies home memory to the device and back to another home, in copies that do not end at page
/// boundaries. Between the copies a host thread changes the home memory, like an update.
void copy_there_and_back(Device& device, Buffer& home, Buffer& other) {
  const size_t bytes = home.bytes();
  const Buffer there = device.allocate(MemoryKind::Device, bytes, "there");
  const auto load = device.create_stream(StreamKind::Load),
             store = device.create_stream(StreamKind::Store),
             update = device.create_stream(StreamKind::Update);
  const auto written = device.create_event(), loaded = device.create_event(),
             stored = device.create_event();
  for (size_t round = 0; round < 2; ++round) {
    update->submit({}, [&home, round] {
      const auto words = words_of(home);
      for (size_t i = 0; i < words.size(); ++i) words[i] = word_at(i + round);
    });
    update->record(*written);
    load->wait(*written);
    const size_t cut = bytes / 3 + 1;
    load->copy(there.data(), home.data(), cut, CopyKind::Load);
    load->copy(there.data() + cut, home.data() + cut, bytes - cut, CopyKind::Load);
    load->record(*loaded);
    store->wait(*loaded);
    store->copy(other.data(), there.data(), bytes - cut, CopyKind::Store);
    store->copy(other.data() + bytes - cut, there.data() + bytes - cut, cut, CopyKind::Store);
    store->record(*stored);
    size_t wrong = bytes;
    update->wait(*stored);
    update->submit({}, [&other, &wrong, round] {
      const auto words = words_of(other);
      wrong = 0;
      for (size_t i = 0; i < words.size(); ++i) wrong += words[i] != word_at(i + round);
    });
    update->synchronize();
    ASSERT_EQ(wrong, 0u) << "round " << round;
  }
  load->synchronize();
  EXPECT_EQ(load->stats().copied_bytes, 2 * bytes);
}

/// Allocates a home of `bytes` bytes, and expects `pinned_bytes` pinned bytes and no ring.
void expect_pinned_whole(Device& device, size_t bytes, size_t pinned_bytes) {
  const size_t before = emulation::pinned_bytes();
  Buffer home = device.allocate(MemoryKind::Home, bytes, "home");
  EXPECT_EQ(emulation::pinned_bytes() - before, pinned_bytes);
  EXPECT_EQ(device.pinned_bytes(), pinned_bytes);
  EXPECT_EQ(device.staged_bytes(), 0u);
  EXPECT_FALSE(device.pinning_refused());
  Buffer other = device.allocate(MemoryKind::Home, home.bytes(), "other");
  copy_there_and_back(device, home, other);
  home = Buffer();
  other = Buffer();
  EXPECT_EQ(emulation::pinned_bytes(), before);
  EXPECT_EQ(device.pinned_bytes(), 0u);
}

TEST_F(HomeMemoryTest, IsOneRegionOfExactlyItsPages) {
  expect_pinned_whole(*device(), 5 * kMiB + 8, 5 * kMiB + kPage);
}

TEST_F(HomeMemoryTest, WhatMayNotBePinnedGoesThroughARing) {
  constexpr size_t kLimit = 4 * kMiB;
  const auto device = this->device(kLimit);
  Buffer home = device->allocate(MemoryKind::Home, 6 * kMiB + 12344, "home");
  EXPECT_LE(device->pinned_bytes(), kLimit);
  EXPECT_GT(device->pinned_bytes(), kLimit - 2 * kMiB);
  EXPECT_EQ(device->staged_bytes() + device->pinned_bytes(),
            6 * kMiB + 4 * kPage + 2 * 4 * (size_t{64} << 10));
  Buffer other = device->allocate(MemoryKind::Home, home.bytes(), "other");
  EXPECT_GE(device->staged_bytes(), other.bytes());
  copy_there_and_back(*device, home, other);
  const Buffer small = device->allocate(MemoryKind::Pinned, kMiB / 2, "what kernels read");
  EXPECT_LE(device->pinned_bytes(), kLimit);
  EXPECT_FALSE(device->pinning_refused());
}

TEST_F(HomeMemoryTest, WhereTheDriverRefusesLessIsPinned) {
  emulation::settings().pinnable_bytes = 6 * kMiB;
  const auto device = this->device(8 * kMiB);
  Buffer home = device->allocate(MemoryKind::Home, 7 * kMiB, "home");
  EXPECT_GT(device->staged_bytes(), 0u);
  EXPECT_LT(device->staged_bytes(), 7 * kMiB);
  EXPECT_TRUE(device->pinning_refused());
  Buffer other = device->allocate(MemoryKind::Home, home.bytes(), "other");
  copy_there_and_back(*device, home, other);
  // A pinned buffer that kernels read directly can still be allocated.
  const Buffer small = device->allocate(MemoryKind::Pinned, kMiB / 2, "what kernels read");
}

TEST_F(HomeMemoryTest, IsPinnedInPiecesThatTheDriverTakes) {
  expect_pinned_whole(*device_of_pieces(kMiB), 4 * kMiB + 12344, 4 * kMiB + 4 * kPage);
}

/// A smaller size is tried only for the refused piece, after the rings and small buffers are
/// reserved.
TEST_F(HomeMemoryTest, WhereAPieceIsRefusedThoseBeforeItStay) {
  const auto device = device_of_pieces(kMiB);
  const size_t before = emulation::pinned_bytes();
  emulation::settings().pinnable_bytes = before + 8 * kMiB - kMiB / 4;
  Buffer home = device->allocate(MemoryKind::Home, 10 * kMiB, "home");
  EXPECT_TRUE(device->pinning_refused());
  // All except the headroom for small buffers: six pieces, the rings, and a quarter of the seventh.
  EXPECT_EQ(device->pinned_bytes(), 6 * kMiB + kMiB / 2 + kMiB / 4);
  EXPECT_EQ(emulation::pinned_bytes() - before, device->pinned_bytes());
  Buffer other = device->allocate(MemoryKind::Home, home.bytes(), "other");
  copy_there_and_back(*device, home, other);
  const Buffer small = device->allocate(MemoryKind::Pinned, kMiB / 2, "what kernels read");
}

/// The full rings have 32 MiB; the smallest have half a MiB.
TEST_F(HomeMemoryTest, RingsAreAsLargeAsTheDriverPins) {
  size_t before = 0;
  for (const size_t pinnable : {kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB}) {
    emulation::settings().pinnable_bytes = pinnable;
    const auto device = this->device();
    Buffer home = device->allocate(MemoryKind::Home, 10 * kMiB, "home");
    EXPECT_GT(device->pinned_bytes(), before);
    before = device->pinned_bytes();
    Buffer other = device->allocate(MemoryKind::Home, home.bytes(), "other");
    copy_there_and_back(*device, home, other);
    if (pinnable < 2 * kMiB) continue;
    const Buffer small = device->allocate(MemoryKind::Pinned, kMiB / 2, "what kernels read");
  }
}

TEST_F(HomeMemoryTest, RingsKeepToTheLimit) {
  constexpr size_t kLimit = 32 * kMiB;
  const auto device = this->device(kLimit);
  Buffer most = device->allocate(MemoryKind::Pinned, 29 * kMiB, "most");
  Buffer home = device->allocate(MemoryKind::Home, 4 * kMiB, "home");
  EXPECT_LE(device->pinned_bytes(), kLimit);
  Buffer other = device->allocate(MemoryKind::Home, 4 * kMiB, "other");
  copy_there_and_back(*device, home, other);
  EXPECT_LE(device->pinned_bytes(), kLimit);
}

TEST_F(HomeMemoryTest, WhereALimitLeavesRingsNoRoomItIsNamed) {
  const auto device = this->device(4 * kMiB);
  const Buffer most = device->allocate(MemoryKind::Pinned, 4 * kMiB - kMiB / 4, "most");
  const auto error =
      error_of<OutOfMemory>([&] { device->allocate(MemoryKind::Home, kMiB, "home"); });
  EXPECT_EQ(error.limit, 4 * kMiB);
  EXPECT_SAYS(error, "`pinned_memory`");
  EXPECT_EQ(device->pinned_bytes(), most.bytes());
}

TEST_F(HomeMemoryTest, WhereNotEvenARingCanBePinnedItSaysWhoRefuses) {
  emulation::settings().pinnable_bytes = kMiB / 2;
  const auto device = this->device();
  const auto error =
      error_of<OutOfMemory>([&] { device->allocate(MemoryKind::Home, 16 * kMiB, "home"); });
  EXPECT_EQ(error.kind, "pinned");
  EXPECT_SAYS(error, "ulimit -l");
  EXPECT_EQ(device->pinned_bytes(), 0u);
}

TEST_F(HomeMemoryTest, ALimitBelowTheRingsIsRefused) {
  const auto error = error_of<ConfigError>([&] { device(kMiB); });
  EXPECT_SAYS(error, "`pinned_memory` 1 MiB");
}

TEST_F(HomeMemoryTest, BuffersThatArePinnedWholeKeepToTheLimit) {
  const auto device = this->device(4 * kMiB);
  const Buffer most = device->allocate(MemoryKind::Pinned, 3 * kMiB, "most");
  const auto error =
      error_of<OutOfMemory>([&] { device->allocate(MemoryKind::Pinned, 2 * kMiB, "too much"); });
  EXPECT_EQ(error.used, 3 * kMiB);
  EXPECT_EQ(error.limit, 4 * kMiB);
  EXPECT_SAYS(error, "`pinned_memory`");
}

TEST_F(HomeMemoryTest, ACopyThatFailsOnTheWayIsKnownToTheStream) {
  int launches = 0;
  const auto device = create_device(
      {.profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = 2 * kMiB},
       .fault = [&launches](FaultSite site) {
         return site == FaultSite::Launch && ++launches == 3;
       }});
  const Buffer home = device->allocate(MemoryKind::Home, 8 * kMiB, "home");
  const Buffer there = device->allocate(MemoryKind::Device, 8 * kMiB, "there");
  const auto load = device->create_stream(StreamKind::Load);
  load->copy(there.data(), home.data(), home.bytes(), CopyKind::Load);
  EXPECT_THROW(load->synchronize(), DeviceError);
}

TEST_F(HomeMemoryTest, WithoutADriverThereIsNoDevice) {
  emulation::settings().driver_version = 0;
  emulation::settings().num_devices = 0;
  const auto error = error_of<ConfigError>([&] { device(64 * kMiB); });
  EXPECT_SAYS(error, "no CUDA driver");
}

/// The words of events are allocated before the home pins all memory that the driver allows.
TEST_F(HomeMemoryTest, LeavesEventsTheirRoom) {
  emulation::settings().pinnable_bytes = 2 * kMiB;
  const auto device = this->device();
  const size_t rest = emulation::settings().pinnable_bytes - emulation::pinned_bytes();
  const Buffer home = device->allocate(MemoryKind::Home, rest, "home");
  EXPECT_EQ(device->staged_bytes(), 0u);
  EXPECT_NO_THROW(device->create_event());
}

TEST_F(HomeMemoryTest, TrainingGivesTheSameBits) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a step takes minutes here; the copies above have the same threads";
#endif
  emulation::settings().granularity = size_t{64} << 10;
  TrainingCase run{.memory = Memory::Smallest, .device = DeviceKind::Cuda, .num_steps = 2};
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  EXPECT_GE(prepared.ledger.bytes("driver", Tier::Host), driver_host_bytes(0));
  size_t pinned_bytes = 0;
  const auto look = [&pinned_bytes](Trainer&, uint32_t) {
    pinned_bytes = emulation::pinned_bytes();
  };
  const Outcome pinned = train(model, prepared, run, look).outcome;
  const size_t all_bytes = pinned_bytes;
  run.pinned_bytes = 3 * kMiB;
  EXPECT_EQ(train(model, prepared, run, look).outcome, pinned);
  EXPECT_LT(pinned_bytes, run.pinned_bytes + kMiB);  // plus the memory of events
  EXPECT_LT(pinned_bytes + kMiB, all_bytes);
}

}  // namespace
}  // namespace ebb::test::tests_of_home_memory
