#include <gtest/gtest.h>

#include <thread>

#include "comm/futex_word.h"
#include "system/clock.h"

namespace ebb {
namespace {

TEST(FutexWord, SleepReturnsAtOnceWhenTheWordHasChanged) {
  FutexWord word{};
  word.raise(1);
  const double start_s = steady_now_s();
  word.sleep(0, 60);
  EXPECT_LT(steady_now_s() - start_s, 30);
}

TEST(FutexWord, SleepEndsAfterItsLimit) {
  const FutexWord word{};
  const double start_s = steady_now_s();
  word.sleep(0, 0.05);
  EXPECT_GE(steady_now_s() - start_s, 0.049);
}

TEST(FutexWord, RaiseWakesAllThreads) {
  FutexWord word{};
  const double start_s = steady_now_s();
  std::thread sleepers[3];
  for (std::thread& sleeper : sleepers) sleeper = std::thread([&] { word.sleep(0, 60); });
  sleep_until(start_s + 0.05);
  word.raise(1);
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_LT(steady_now_s() - start_s, 30);
}

// A raise that did not wake would let each round sleep for a minute. The value is plain memory, so
// that ThreadSanitizer reports a missing order as a race.
TEST(FutexWord, RaiseWakesAndPublishes) {
  FutexWord to{}, from{};
  uint32_t value = 0;
  const auto wait = [](const FutexWord& word, uint32_t wanted) {
    for (uint32_t seen = word.load(); seen < wanted; seen = word.load()) word.sleep(seen, 60);
  };
  std::thread other([&] {
    for (uint32_t round = 1; round <= 2000; ++round) {
      wait(to, round);
      value += round;
      from.raise(round);
    }
  });
  const double start_s = steady_now_s();
  for (uint32_t round = 1; round <= 2000; ++round) {
    value *= 3;
    const uint32_t expected = value + round;
    to.raise(round);
    wait(from, round);
    ASSERT_EQ(value, expected);
  }
  other.join();
  EXPECT_LT(steady_now_s() - start_s, 50);
}

}  // namespace
}  // namespace ebb
