// After an operation of a stream has failed, later work is dropped, streams and events that depend
// on the operation report the error, and no thread waits forever.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "device/device.h"
#include "device/errors.h"
#include "tests/device/backends.h"

namespace ebb {
namespace {

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

class StreamErrors : public test::OnDevice {
 protected:
  void SetUp() override {
    test::OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device = make_device();
    event = device->create_event();
    a = device->create_stream(StreamKind::Compute);
    b = device->create_stream(StreamKind::Load);
    c = device->create_stream(StreamKind::Store);
    update = device->create_stream(StreamKind::Update);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Event> event;
  std::unique_ptr<Stream> a, b, c, update;
};

TEST_P(StreamErrors, TheFirstErrorIsKeptAndLaterWorkIsDropped) {
  bool ran = false;
  a->submit({}, [] { throw DeviceError("first"); });
  a->submit({}, [&ran] { ran = true; });
  a->submit({}, [] { throw DeviceError("second"); });
  EXPECT_EQ(error_of([&] { a->synchronize(); }), "first");
  EXPECT_EQ(error_of([&] { a->synchronize(); }), "first");
  EXPECT_FALSE(ran);
  EXPECT_EQ(a->stats().num_operations, 1u);
}

TEST_P(StreamErrors, EventsAreReachedAndReportTheError) {
  a->submit({}, [] { throw DeviceError("broken"); });
  a->record(*event);
  EXPECT_EQ(error_of([&] { event->synchronize(); }), "broken");
  EXPECT_TRUE(event->done());
}

TEST_P(StreamErrors, EventsBeforeTheErrorReportNoError) {
  auto early = device->create_event();
  a->record(*early);
  a->submit({}, [] { throw DeviceError("broken"); });
  a->record(*event);
  EXPECT_EQ(error_of([&] { event->synchronize(); }), "broken");
  early->synchronize();
  b->wait(*early);
  b->synchronize();
}

TEST_P(StreamErrors, AWaitingStreamReportsTheSameError) {
  auto next = device->create_event();
  bool ran = false;
  a->submit({}, [] { throw DeviceError("broken"); });
  a->record(*event);
  b->wait(*event);
  b->submit({}, [&ran] { ran = true; });
  b->record(*next);
  c->wait(*next);
  c->submit({}, [&ran] { ran = true; });
  EXPECT_EQ(error_of([&] { c->synchronize(); }), "broken");
  EXPECT_EQ(error_of([&] { b->synchronize(); }), "broken");
  EXPECT_EQ(error_of([&] { next->synchronize(); }), "broken");
  EXPECT_FALSE(ran);
}

TEST_P(StreamErrors, ManyWaitersAllReturn) {
  std::atomic<int> num_failed = 0;
  a->submit({}, [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw DeviceError("broken");
  });
  a->record(*event);
  std::thread waiters[4];
  for (std::thread& waiter : waiters) {
    waiter =
        std::thread([&] { num_failed += error_of([&] { event->synchronize(); }) == "broken"; });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(num_failed, 4);
}

TEST_P(StreamErrors, DestructorsDoNotThrow) {
  a->submit({}, [] { throw DeviceError("broken"); });
  a->record(*event);
  b->wait(*event);
  b.reset();
  a.reset();
}

TEST_P(StreamErrors, AnErrorOfAHostThreadReachesTheDevice) {
  auto early = device->create_event();
  bool ran = false;
  update->record(*early);
  update->submit({}, [] { throw DeviceError("broken"); });
  update->record(*event);
  b->wait(*early);
  c->wait(*event);
  c->submit({}, [&ran] { ran = true; });
  b->synchronize();
  EXPECT_EQ(error_of([&] { c->synchronize(); }), "broken");
  EXPECT_EQ(error_of([&] { event->synchronize(); }), "broken");
  EXPECT_FALSE(ran);
}

TEST_P(StreamErrors, AnErrorOfTheDeviceReachesHostThreads) {
  bool ran = false;
  a->submit({}, [] { throw DeviceError("broken"); });
  a->record(*event);
  update->wait(*event);
  update->submit({}, [&ran] { ran = true; });
  EXPECT_EQ(error_of([&] { update->synchronize(); }), "broken");
  EXPECT_FALSE(ran);
}

TEST_P(StreamErrors, ANewStreamAfterAnErrorHasNoError) {
  a->submit({}, [] { throw DeviceError("broken"); });
  EXPECT_EQ(error_of([&] { a->synchronize(); }), "broken");
  for (int i = 0; i < 40; ++i) {
    a.reset();
    a = device->create_stream(StreamKind::Compute);
    a->record(*event);
    b->wait(*event);
    a->synchronize();
    b->synchronize();
  }
}

EBB_ON_EVERY_DEVICE(StreamErrors);

class StreamFaults : public test::OnDevice {
 protected:
  std::string run_pipeline(FaultSite site, int fail_at) const;
};

/// Runs load, kernel and store three times on three streams. The n-th copy or launch fails.
std::string StreamFaults::run_pipeline(FaultSite site, int fail_at) const {
  int num_asked = 0;
  auto device = make_device(
      {.fault = [&](FaultSite asked) { return asked == site && num_asked++ == fail_at; }});
  Buffer counter = device->allocate(MemoryKind::Pinned, 256, "counter");
  Buffer pinned = device->allocate(MemoryKind::Pinned, 256, "pinned");
  Buffer on_device = device->allocate(MemoryKind::Device, 256, "device");
  auto loaded = device->create_event(), computed = device->create_event(),
       stored = device->create_event();
  stored->signal();
  auto load = device->create_stream(StreamKind::Load),
       compute = device->create_stream(StreamKind::Compute),
       store = device->create_stream(StreamKind::Store);
  for (int i = 0; i < 3; ++i) {
    load->wait(*stored);
    load->copy(on_device.data(), pinned.data(), 256, CopyKind::Load);
    load->record(*loaded);
    compute->wait(*loaded);
    compute->submit({.name = "add_one"}, [p = counter.data()] { p[0] = std::byte(int(p[0]) + 1); });
    compute->record(*computed);
    store->wait(*computed);
    store->copy(pinned.data(), on_device.data(), 256, CopyKind::Store);
    store->record(*stored);
  }
  return error_of([&] {
    stored->synchronize();
    EXPECT_EQ(int(counter.data()[0]), 3);
  });
}

TEST_P(StreamFaults, EveryCopyAndLaunchCanFail) {
  for (int n = 0; n < 6; ++n) {
    EXPECT_EQ(run_pipeline(FaultSite::Copy, n), "injected copy failure: 256 B") << n;
  }
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(run_pipeline(FaultSite::Launch, n), "injected launch failure: add_one") << n;
  }
  EXPECT_EQ(run_pipeline(FaultSite::Copy, 6), "no error");
  EXPECT_EQ(run_pipeline(FaultSite::Launch, 3), "no error");
}

TEST_P(StreamFaults, EveryAllocationCanFail) {
  for (int fail_at = 0; fail_at < 3; ++fail_at) {
    int num_asked = 0;
    auto device = make_device({.memory_bytes = 100, .fault = [&](FaultSite site) {
                                 return site == FaultSite::Allocation && num_asked++ == fail_at;
                               }});
    const auto set_up = [&] {
      Buffer buffer = device->allocate(MemoryKind::Device, 10, "buffer");
      auto blocks = device->create_blocks(granularity(), 0);
      device->reserve_workspace(20);
    };
    EXPECT_THROW(set_up(), OutOfMemory) << fail_at;
    EXPECT_EQ(device->used_bytes(), 0u);
    EXPECT_EQ(device->num_allocations(), uint64_t(fail_at));
    set_up();
  }
}

EBB_ON_EVERY_DEVICE(StreamFaults);

}  // namespace
}  // namespace ebb
