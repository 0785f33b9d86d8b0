#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "scheduler/run/progress.h"

namespace ebb {
namespace {

TEST(Progress, AWaitMakesEarlierWritesVisible) {
  constexpr uint32_t kCount = 20'000;
  std::vector<uint32_t> done(kCount, 0);
  Progress progress;
  std::thread worker([&] {
    for (uint32_t i = 0; i < kCount; ++i) {
      done[i] = i + 1;
      progress.set(i + 1);
    }
  });
  for (uint32_t wanted = 1; wanted <= kCount; wanted += 1 + wanted % 7) {
    EXPECT_TRUE(progress.wait_for(wanted));
    EXPECT_EQ(done[wanted - 1], wanted);
  }
  EXPECT_TRUE(progress.wait_for(kCount));
  worker.join();
}

TEST(Progress, CountsFromZeroAfterAReset) {
  Progress progress;
  EXPECT_TRUE(progress.wait_for(0));
  progress.set(3);
  EXPECT_TRUE(progress.wait_for(3));
  progress.reset();
  bool set = false;
  std::thread worker([&] {
    set = true;
    progress.set(2);
  });
  EXPECT_TRUE(progress.wait_for(1));
  EXPECT_TRUE(set);
  worker.join();
}

TEST(Progress, CancelEndsTheWait) {
  Progress progress;
  progress.set(1);
  std::thread worker([&] { progress.cancel(); });
  EXPECT_FALSE(progress.wait_for(2));
  EXPECT_FALSE(progress.wait_for(1));
  worker.join();
}

}  // namespace
}  // namespace ebb
