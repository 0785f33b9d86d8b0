// A failure in a copy through a staging ring affects only that copy and its stream. The ring
// continues with the copies of other streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "device/device.h"
#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/device/gate.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test::tests_of_staging_ring {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPinned = 2 * kMiB, kBytes = 3 * kMiB;  // a home of kBytes is pinned in part only

class StagingRingTest : public testing::Test {
 protected:
  ~StagingRingTest() override {
    device_.reset();
    EXPECT_EQ(emulation::live(), emulation::Live());
    emulation::settings() = {};
  }

  /// `fault`: called for each piece that a ring's thread copies; true makes the copy fail.
  void make_device(std::function<bool(uint64_t piece)> fault = {}) {
    DeviceOptions options{
        .profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .pinned_bytes = kPinned}};
    if (fault) {
      options.fault = [this, fault](FaultSite site) {
        return site == FaultSite::Launch && fault(num_pieces_++);
      };
    }
    device_ = create_device(options);
  }

  Buffer home(char value = 0) {
    Buffer buffer = device_->allocate(MemoryKind::Home, kBytes, "home");
    std::fill_n(reinterpret_cast<char*>(buffer.data()), kBytes, value);
    return buffer;
  }
  Buffer away() { return device_->allocate(MemoryKind::Device, kBytes, "away"); }

  /// Copies a home to the device and back, on new streams.
  void copy_there_and_back() {
    const Buffer from = home('x'), to = home(), there = away();
    const auto loaded = device_->create_event();
    const auto load = device_->create_stream(StreamKind::Load);
    const auto store = device_->create_stream(StreamKind::Store);
    load->copy(there.data(), from.data(), kBytes, CopyKind::Load);
    load->record(*loaded);
    store->wait(*loaded);
    store->copy(to.data(), there.data(), kBytes, CopyKind::Store);
    EXPECT_NO_THROW(load->synchronize());
    EXPECT_NO_THROW(store->synchronize());
    EXPECT_EQ(std::count(to.data(), to.data() + kBytes, std::byte{'x'}), kBytes);
  }

  std::unique_ptr<Device> device_;
  std::atomic<uint64_t> num_pieces_ = 0;
  const Watchdog watchdog_{std::chrono::seconds(240)};
};

constexpr StreamKind role_of(CopyKind kind) {
  return kind == CopyKind::Load ? StreamKind::Load : StreamKind::Store;
}
void copy(Stream& stream, const Buffer& home, const Buffer& there, CopyKind kind) {
  if (kind == CopyKind::Load) return stream.copy(there.data(), home.data(), kBytes, kind);
  stream.copy(home.data(), there.data(), kBytes, kind);
}

TEST_F(StagingRingTest, APieceThatFailsIsTheFailureOfItsStreamAlone) {
  for (const CopyKind kind : {CopyKind::Load, CopyKind::Store}) {
    num_pieces_ = 0;
    make_device([](uint64_t piece) { return piece == 2; });
    {
      const Buffer home = this->home('y'), there = away();
      const auto event = device_->create_event();
      const auto stream = device_->create_stream(role_of(kind));
      copy(*stream, home, there, kind);
      stream->record(*event);
      EXPECT_THROW(stream->synchronize(), DeviceError);
      EXPECT_THROW(event->synchronize(), DeviceError);
      copy_there_and_back();
    }
    copy_there_and_back();
    device_.reset();
  }
}

/// The ring gets the failure of a stream from the event before the copy.
TEST_F(StagingRingTest, WhatAStreamWaitedForIsNotTheRingsFailure) {
  make_device();
  for (const CopyKind kind : {CopyKind::Load, CopyKind::Store}) {
    {
      const Buffer home = this->home('y'), there = away();
      Gate gate;
      const auto updated = device_->create_event();
      const auto stream = device_->create_stream(role_of(kind));
      const auto update = device_->create_stream(StreamKind::Update);
      update->submit({}, [&gate] {
        gate.pass();
        throw DeviceError("broken");
      });
      update->record(*updated);
      stream->wait(*updated);
      // The copy has more parts than may be in flight behind the wait.
      std::thread opens([&gate] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gate.open();
      });
      copy(*stream, home, there, kind);
      opens.join();
      EXPECT_THROW(stream->synchronize(), DeviceError);
    }
    copy_there_and_back();
  }
}

/// Copies of two streams pass through the ring one after the other. The first fails when the second
/// is already submitted.
TEST_F(StagingRingTest, ACopyBehindOneThatFailsIsMade) {
  Gate gate;
  make_device([&gate](uint64_t piece) {
    if (piece == 0) gate.pass();
    return piece == 0;
  });
  const Buffer first_home = home('y'), second_home = home('x');
  const Buffer first_there = away(), second_there = away();
  const auto stored = device_->create_event();
  const auto first = device_->create_stream(StreamKind::Load);
  const auto second = device_->create_stream(StreamKind::Load);
  const auto store = device_->create_stream(StreamKind::Store);
  std::thread opens([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  copy(*first, first_home, first_there, CopyKind::Load);
  copy(*second, second_home, second_there, CopyKind::Load);
  second->record(*stored);
  store->wait(*stored);
  const Buffer back = home();
  copy(*store, back, second_there, CopyKind::Store);
  opens.join();
  EXPECT_THROW(first->synchronize(), DeviceError);
  EXPECT_NO_THROW(second->synchronize());
  EXPECT_NO_THROW(store->synchronize());
  EXPECT_EQ(std::count(back.data(), back.data() + kBytes, std::byte{'x'}), kBytes);
}

/// CUDA refuses the third piece of a store while the ring's thread copies the first piece. The home
/// memory is not freed before the thread is done.
TEST_F(StagingRingTest, AHomeOutlivesThePiecesOfAStoreThatWasBrokenOff) {
  Gate entered, gate;
  make_device([&](uint64_t piece) {
    if (piece == 0) entered.open(), gate.pass();
    return false;
  });
  Buffer home = this->home();
  const Buffer there = away();
  auto store = device_->create_stream(StreamKind::Store);
  emulation::settings().refuses = [&, num_copies = 0](std::string_view call) mutable {
    if (call != "cudaMemcpyAsync" || num_copies++ != 3)
      return false;  // call 0 copies the pinned part
    entered.pass();
    return true;
  };
  copy(*store, home, there, CopyKind::Store);
  std::thread opens([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  EXPECT_THROW(store->synchronize(), DeviceError);
  store.reset();
  home = Buffer();
  opens.join();
  copy_there_and_back();
}

}  // namespace
}  // namespace ebb::test::tests_of_staging_ring
