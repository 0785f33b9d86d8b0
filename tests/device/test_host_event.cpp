#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/errors.h"
#include "device/host/host_event.h"

namespace ebb {
namespace {

TEST(HostEvent, NeverRecordedCannotBeAwaited) {
  HostEvent event;
  EXPECT_FALSE(event.done());
  EXPECT_THROW(event.synchronize(), LogicError);
  EXPECT_THROW(event.latest(), LogicError);
  EXPECT_THROW(event.time_s(), LogicError);
}

TEST(HostEvent, DoneMeansTheLatestRecord) {
  HostEvent event;
  const uint64_t first = event.submit_record();
  event.reach(first, nullptr);
  EXPECT_TRUE(event.done());
  const uint64_t second = event.submit_record();
  EXPECT_FALSE(event.done());
  EXPECT_THROW(event.time_s(), LogicError);
  event.await(first);  // still reached
  event.reach(second, nullptr);
  EXPECT_TRUE(event.done());
}

TEST(HostEvent, RecordsMayBeReachedInAnyOrder) {
  HostEvent event;
  const uint64_t first = event.submit_record(), second = event.submit_record();
  event.reach(second, nullptr);
  event.await(second);
  EXPECT_TRUE(event.done());
  std::atomic<bool> reached_first = false;
  std::thread waiter([&] {
    event.await(first);
    EXPECT_TRUE(reached_first);  // the later record must not have released it
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  reached_first = true;
  event.reach(first, nullptr);
  waiter.join();
}

struct CountingListener final : HostEvent::Listener {
  void reached() override { ++num_told; }
  int num_told = 0;
};

TEST(HostEvent, ListenersAreToldOnceAndOfTheirGenerations) {
  HostEvent event;
  CountingListener of_first, of_second, of_first_too;
  const uint64_t first = event.submit_record(), second = event.submit_record();
  ASSERT_TRUE(event.tell(first, of_first));
  ASSERT_TRUE(event.tell(second, of_second));
  ASSERT_TRUE(event.tell(first, of_first_too));
  event.reach(second, nullptr);
  EXPECT_EQ(of_second.num_told, 1);
  EXPECT_EQ(of_first.num_told, 0);
  event.reach(first, nullptr);
  EXPECT_EQ(of_first.num_told, 1);
  EXPECT_EQ(of_first_too.num_told, 1);
  event.signal();
  EXPECT_EQ(of_first.num_told, 1);
  EXPECT_EQ(of_second.num_told, 1);
  EXPECT_FALSE(event.tell(first, of_first));
}

TEST(HostEvent, FarAheadRecordWaitsForTheWindow) {
  HostEvent event;
  const uint64_t first = event.submit_record();
  for (int i = 0; i < 100; ++i) event.submit_record();
  const uint64_t last = event.latest();
  std::thread ahead([&] {
    for (uint64_t g = first + 1; g <= last; ++g) event.reach(g, nullptr);
  });
  event.await(first + 60);
  event.reach(first, nullptr);
  ahead.join();
  EXPECT_TRUE(event.done());
}

TEST(HostEvent, WhatIsYetToComeIsKnownBeforeItIsDone) {
  constexpr double kLater_s = 0.03;
  HostEvent event;
  const double later_s = steady_now_s() + kLater_s;
  const uint64_t record = event.submit_record();
  event.reach(record, nullptr, later_s);
  EXPECT_EQ(event.await(record).time_s, later_s);
  const bool done = event.done();
  if (done) {  // a machine may be that late
    EXPECT_GE(steady_now_s(), later_s);
  }
  event.synchronize();
  EXPECT_GE(steady_now_s(), later_s);
  EXPECT_TRUE(event.done());
}

TEST(HostEvent, KeepsTheErrorOfARecord) {
  HostEvent event;
  event.reach(event.submit_record(), std::make_exception_ptr(DeviceError("lost")));
  EXPECT_TRUE(event.done());
  EXPECT_THROW(event.synchronize(), DeviceError);
  event.signal();
  EXPECT_THROW(event.synchronize(), DeviceError);
}

TEST(HostEvent, SignalFromAHostThread) {
  HostEvent event;
  event.signal();
  event.synchronize();
  const double first_s = event.time_s();
  std::thread([&] { event.signal(); }).join();
  event.synchronize();
  EXPECT_GE(event.time_s(), first_s);
}

}  // namespace
}  // namespace ebb
