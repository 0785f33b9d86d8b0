#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "system/record_counter.h"

namespace ebb {
namespace {

TEST(RecordCounter, StartsWithoutARecord) {
  RecordCounter records;
  EXPECT_EQ(records.newest(), 0u);
  EXPECT_FALSE(records.newest_time_s().has_value());
  EXPECT_EQ(records.submit(), 1u);
  EXPECT_EQ(records.newest(), 1u);
  EXPECT_FALSE(records.is_reached(1));
  EXPECT_FALSE(records.newest_time_s().has_value());
}

TEST(RecordCounter, ReachesRecordsInAnyOrder) {
  RecordCounter records;
  const uint64_t first = records.submit(), second = records.submit();
  records.reach(second, nullptr, 2.5);
  EXPECT_EQ(records.wait(second).time_s, 2.5);
  EXPECT_TRUE(records.is_reached(second));
  EXPECT_FALSE(records.is_reached(first));
  std::atomic<bool> reached_first = false;
  std::thread waiter([&] {
    records.wait(first);
    EXPECT_TRUE(reached_first);  // the later record must not end the wait
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  reached_first = true;
  records.reach(first, nullptr, 3.0);
  waiter.join();
  EXPECT_EQ(records.newest_time_s(), 2.5);
}

TEST(RecordCounter, ReachingARecordFarAheadWaitsForTheOldest) {
  RecordCounter records;
  const uint64_t first = records.submit();
  uint64_t last = first;
  for (int i = 0; i < 100; ++i) last = records.submit();
  std::thread ahead([&] {
    for (uint64_t i = first + 1; i <= last; ++i) records.reach(i, nullptr);
  });
  records.wait(first + 60);
  records.reach(first, nullptr);
  ahead.join();
  EXPECT_TRUE(records.is_reached(last));
}

TEST(RecordCounter, TheShownNumberCountsReachedRecordsWithoutGaps) {
  uint32_t shown = 0;
  RecordCounter records(&shown);
  for (int i = 0; i < 3; ++i) records.submit();
  records.reach(2, nullptr);
  EXPECT_EQ(shown, 0u);
  records.reach(1, nullptr);
  EXPECT_EQ(shown, 2u);
  records.reach(3, nullptr);
  EXPECT_EQ(shown, 3u);
}

TEST(RecordCounter, KeepsTheFirstErrorOfItsRecords) {
  RecordCounter records;
  records.reach(records.submit(), std::make_exception_ptr(std::runtime_error("first")));
  records.reach(records.submit(), std::make_exception_ptr(std::runtime_error("second")));
  try {
    std::rethrow_exception(records.wait(2).error);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

// The value is plain memory, so that ThreadSanitizer reports a missing order as a race.
TEST(RecordCounter, AWaitSeesTheWorkBeforeTheRecord) {
  RecordCounter records;
  for (int round = 0; round < 100; ++round) {
    int value = 0;
    const uint64_t record = records.submit();
    std::thread worker([&] {
      value = round + 1;
      records.reach(record, nullptr);
    });
    records.wait(record);
    EXPECT_EQ(value, round + 1);
    worker.join();
  }
}

}  // namespace
}  // namespace ebb
