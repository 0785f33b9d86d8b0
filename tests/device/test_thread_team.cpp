#include <gtest/gtest.h>

#include <vector>

#include "device/host/parallel.h"

namespace ebb {
namespace {

class ThreadTeamTest : public testing::TestWithParam<int> {
 protected:
  ThreadTeam team{GetParam()};
};

// Plain memory: under ThreadSanitizer a fork or join that orders nothing is a reported race.
TEST_P(ThreadTeamTest, RunsEachBodyOnceAndJoins) {
  for (int64_t n : {0, 1, 2, 3, 1000}) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int64_t> values(static_cast<size_t>(n), round);
      team.for_each(n, [&](int64_t i) { values[static_cast<size_t>(i)] += i; });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], round + i);
    }
  }
}

TEST_P(ThreadTeamTest, FlushesDenormalsInsideBodiesOnly) {
  volatile float tiny = 1e-30f;
  std::vector<float> products(64, 1.0f);
  team.for_each(64, [&](int64_t i) { products[static_cast<size_t>(i)] = tiny * tiny * 1e20f; });
  for (float product : products) EXPECT_EQ(product, 0);
  const volatile float small = 1e-38f, tenth = 0.1f;
  EXPECT_GT(small * tenth, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadTeamTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace ebb
