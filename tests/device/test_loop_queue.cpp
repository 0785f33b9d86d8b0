// What follows one another without a barrier: each body once, in the order that is promised and no
// other. Plain memory: under ThreadSanitizer a push or pop that orders nothing is a reported race.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/host/loop_queue.h"
#include "tests/device/gate.h"

namespace ebb {
namespace {

/// More than the cores of a small machine.
class LoopQueueTest : public testing::TestWithParam<std::vector<NodeThreads>> {
 protected:
  static constexpr int kMost = 8;
  const tbb::global_control threads_allowed_{tbb::global_control::max_allowed_parallelism, kMost};
};

void finish(LoopQueue& queue) {
  while (queue.size() > 0) {
    while (queue.run_one(0)) {
    }
    queue.wait_until_done();
    queue.pop();
  }
}

// Places are used again while helpers that came late still look for work there.
TEST_P(LoopQueueTest, RunsEachBodyOnceAndThenWhatIsBehind) {
  LoopQueue queue(GetParam());
  constexpr int kLoops = 2000;
  std::vector<std::vector<int>> times(kLoops);
  int num_behind = 0;
  for (int l = 0; l < kLoops; ++l) {
    std::vector<int>& of_loop = times[static_cast<size_t>(l)];
    of_loop.resize(l % 7 == 0 ? 40 : static_cast<size_t>(1 + l % 3));
    if (queue.size() == LoopQueue::kCapacity) {
      queue.wait_until_done();
      queue.pop();
    }
    queue.push({.n = static_cast<int64_t>(of_loop.size()),
                .body = [&of_loop](int64_t i) { ++of_loop[static_cast<size_t>(i)]; },
                .then =
                    [&of_loop, &num_behind] {
                      for (int t : of_loop) num_behind += t == 1;
                    }});
    while (queue.run_one(1)) {
    }
  }
  finish(queue);
  int num_bodies = 0;
  for (const std::vector<int>& of_loop : times) {
    ASSERT_EQ(of_loop, std::vector<int>(of_loop.size(), 1));
    num_bodies += static_cast<int>(of_loop.size());
  }
  EXPECT_EQ(num_behind, num_bodies);
}

INSTANTIATE_TEST_SUITE_P(Threads, LoopQueueTest,
                         testing::Values(std::vector<NodeThreads>{{.num_threads = 1}},
                                         std::vector<NodeThreads>{{.num_threads = 2}},
                                         std::vector<NodeThreads>{{.num_threads = 5}},
                                         std::vector<NodeThreads>{{.num_threads = 2}, {}},
                                         std::vector<NodeThreads>{{}, {.num_threads = 3}}));

class LoopQueueOfTwo : public testing::Test {
 protected:
  const tbb::global_control threads_allowed_{tbb::global_control::max_allowed_parallelism, 8};
  LoopQueue queue{std::vector<NodeThreads>{{.num_threads = 2}}};
};

// The one thread is held in the first loop; the other goes on to the second.
TEST_F(LoopQueueOfTwo, BeginsTheNextWhileTheLastOfOneStillRuns) {
  Gate gate;
  std::atomic<bool> is_held = false;
  int num_run = 0;
  queue.push({.n = 1, .body = [&](int64_t) {
                is_held = true;
                gate.pass();
              }});
  while (!is_held) std::this_thread::yield();
  queue.push({.n = 10, .body = [&num_run](int64_t) { ++num_run; }});
  while (queue.run_one(0)) {
  }
  EXPECT_EQ(num_run, 10);
  EXPECT_FALSE(queue.is_done());
  EXPECT_EQ(queue.size(), 2u);
  gate.open();
  finish(queue);
}

TEST_F(LoopQueueOfTwo, FlushesDenormalsInBodiesOfOthers) {
  const volatile float small = 1e-38f, tenth = 0.1f;
  std::atomic<bool> has_run = false;
  float product = 1;
  queue.push({.n = 1, .body = [&](int64_t) {
                product = small * tenth;
                has_run = true;
              }});
  while (!has_run) std::this_thread::yield();  // not by this thread
  finish(queue);
  EXPECT_EQ(product, 0);
}

TEST(LoopQueueOfOne, SparesTheNewest) {
  LoopQueue queue(1);
  std::vector<int> order;
  for (int l : {1, 2, 3})
    queue.push({.n = 2, .body = [&order, l](int64_t) { order.push_back(l); }});
  while (queue.run_one(1)) {
  }
  EXPECT_EQ(order, (std::vector<int>{1, 1, 2, 2}));
  finish(queue);
  EXPECT_EQ(order, (std::vector<int>{1, 1, 2, 2, 3, 3}));
}

TEST(LoopQueueOfOne, TellsWhatABodyThrewAndGoesOn) {
  LoopQueue queue(1);
  bool was_behind = false;
  int num_run = 0;
  queue.push({.n = 3,
              .body =
                  [&num_run](int64_t i) {
                    ++num_run;
                    if (i == 1) throw std::runtime_error("body");
                  },
              .then = [&was_behind] { was_behind = true; }});
  queue.push({.n = 1, .body = [&num_run](int64_t) { ++num_run; }});
  while (queue.run_one(0)) {
  }
  EXPECT_THROW(queue.pop(), std::runtime_error);
  EXPECT_FALSE(was_behind);
  finish(queue);
  EXPECT_EQ(num_run, 4);
}

}  // namespace
}  // namespace ebb
