// Without a bound of the operations in flight, the emulation hangs, and this is how the test of the
// bound would fail. A deadline ends each run.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/cuda_emulation/full_queue.h"

namespace ebb::test {
namespace {

/// Exits with 0 if the run ends. The watchdog aborts the process if it does not.
[[noreturn]] void run_until(const Watchdog&, void (*run)()) {
  run();
  std::_Exit(0);
}

constexpr std::chrono::seconds kDeadline{5};

TEST(UnboundedDeathTest, MappingWhileAQueueIsFullHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_until(Watchdog(kDeadline), map_while_a_queue_is_full),
              testing::KilledBySignal(SIGABRT), "the test hangs");
}

TEST(UnboundedDeathTest, MakingAnEventWhileAQueueIsFullHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_until(Watchdog(kDeadline), make_an_event_while_a_queue_is_full),
              testing::KilledBySignal(SIGABRT), "the test hangs");
}

}  // namespace
}  // namespace ebb::test
