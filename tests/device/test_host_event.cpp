#include <gtest/gtest.h>

#include <thread>

#include "device/errors.h"
#include "device/host/host_event.h"

namespace ebb {
namespace {

TEST(HostEvent, AnEventWithoutARecordCannotBeWaitedFor) {
  HostEvent event;
  EXPECT_FALSE(event.done());
  EXPECT_THROW(event.synchronize(), LogicError);
  EXPECT_THROW(event.submit_wait(), LogicError);
  EXPECT_THROW(event.time_s(), LogicError);
}

TEST(HostEvent, DoneRefersToTheLatestRecord) {
  HostEvent event;
  const uint64_t first = event.submit_record();
  event.reach(first, nullptr);
  EXPECT_TRUE(event.done());
  const uint64_t second = event.submit_record();
  EXPECT_FALSE(event.done());
  EXPECT_THROW(event.time_s(), LogicError);
  event.wait(first);  // the first record is still reached
  event.reach(second, nullptr);
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

TEST(HostEvent, AHostThreadMaySignal) {
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
