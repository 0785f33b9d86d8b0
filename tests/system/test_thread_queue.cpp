#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "system/thread_queue.h"

namespace ebb {
namespace {

using Queue = ThreadQueue<std::function<void()>>;

// The tasks write plain memory, so that ThreadSanitizer reports a missing order as a race.
TEST(ThreadQueue, RunsTasksInOrderOnOneThread) {
  Queue queue("tasks");
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    queue.submit([&, i] {
      order.push_back(i);
      if (i == 0) thread = std::this_thread::get_id();
      EXPECT_EQ(std::this_thread::get_id(), thread);
      EXPECT_TRUE(queue.is_own_thread());
    });
  }
  queue.wait_until_idle();
  EXPECT_FALSE(queue.is_own_thread());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(ThreadQueue, AnEmptyQueueIsIdle) {
  Queue queue("tasks");
  queue.wait_until_idle();
}

TEST(ThreadQueue, SubmittingBlocksWhileTheQueueIsFull) {
  constexpr int kTasks = 5000;  // more than the capacity of the queue
  Queue queue("tasks");
  std::atomic<bool> open = false;
  std::atomic<int> num_submitted = 0, num_run = 0;
  queue.submit([&] {
    while (!open) std::this_thread::yield();
  });
  std::thread submitting([&] {
    for (int i = 0; i < kTasks; ++i, ++num_submitted) queue.submit([&] { ++num_run; });
  });
  while (num_submitted < 1000) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(num_submitted, kTasks);
  open = true;
  submitting.join();
  queue.wait_until_idle();
  EXPECT_EQ(num_run, kTasks);
}

TEST(ThreadQueue, TheDestructorRunsQueuedTasks) {
  int num_run = 0;
  {
    Queue queue("tasks");
    for (int i = 0; i < 50; ++i) {
      queue.submit([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++num_run;
      });
    }
  }
  EXPECT_EQ(num_run, 50);
}

}  // namespace
}  // namespace ebb
