#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/host/host_link.h"
#include "system/clock.h"
#include "system/denormals.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

class ThreadTeamTest : public testing::TestWithParam<int> {
 protected:
  ThreadTeam team{GetParam()};
};

// The bodies write plain memory, so that ThreadSanitizer reports a missing order as a race.
TEST_P(ThreadTeamTest, RunsEachBodyOnceAndJoins) {
  for (int64_t n : {0, 1, 2, 3, 1000}) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int64_t> values(static_cast<size_t>(n), round);
      team.for_each(n, [&](int64_t i) { values[static_cast<size_t>(i)] += i; });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], round + i);
    }
  }
}

TEST_P(ThreadTeamTest, FlushesDenormalsOnlyInsideBodies) {
  volatile float tiny = 1e-30f;
  std::vector<float> products(64, 1.0f);
  team.for_each(64, [&](int64_t i) { products[static_cast<size_t>(i)] = tiny * tiny * 1e20f; });
  for (float product : products) EXPECT_EQ(product, 0);
  const volatile float small = 1e-38f, tenth = 0.1f;
  EXPECT_GT(small * tenth, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadTeamTest, testing::Values(1, 2, 4));

// Other tests compare results for several numbers of threads, so the threads must exist. Each body
// waits until as many bodies have begun as the team has threads.
TEST(ThreadTeamTest, HasTheRequestedNumberOfThreads) {
  constexpr double kPatience_s = 20;
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  for (int threads = 1; threads <= 8; ++threads) {
    ThreadTeam team(threads);
    std::atomic<int> num_begun = 0;
    std::mutex mutex;
    std::set<std::thread::id> ids;
    const double give_up_s = steady_now_s() + kPatience_s;
    team.for_each(threads, [&](int64_t) {
      ++num_begun;
      while (num_begun < threads && steady_now_s() < give_up_s) std::this_thread::yield();
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(std::ssize(ids), threads);
  }
}

// Streams also run host functions outside of thread teams.
TEST(StreamThreads, FlushDenormals) {
  const auto device = create_device({.profile = {.num_threads = 1}});
  for (StreamKind kind :
       {StreamKind::Compute, StreamKind::Load, StreamKind::Store, StreamKind::Update}) {
    const auto stream = device->create_stream(kind);
    const volatile float small = 1e-38f, tenth = 0.1f, denormal = 1e-40f, large = 1e20f;
    float result = 1, input = 1;
    stream->submit({}, [&] {
      result = small * tenth;
      input = denormal * large;
    });
    stream->synchronize();
    EXPECT_EQ(result, 0);
    EXPECT_EQ(input, 0);
  }
}

}  // namespace
}  // namespace ebb
