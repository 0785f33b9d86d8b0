#include <gtest/gtest.h>

#include "system/cores.h"
#include "tools/rank_cores.h"

namespace ebb {
namespace {

CoreSet cores(size_t first, size_t last) {
  CoreSet set;
  for (size_t core = first; core <= last; ++core) set.set(core);
  return set;
}

const std::vector<CoreSet> kOneNode = {cores(0, 7)};
const std::vector<CoreSet> kTwoNodes = {cores(0, 7), cores(8, 15)};

void expect_share(const CoreShare& share, const CoreSet& cores, uint32_t num_sharing) {
  EXPECT_EQ(share.cores, cores);
  EXPECT_EQ(share.num_sharing, num_sharing);
}

TEST(RankCores, RanksOfOneNodeShareIt) {
  const std::vector<CoreSet> allowed(4, cores(0, 7));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    expect_share(core_share(allowed, rank, kOneNode), cores(0, 7), 4);
  }
}

TEST(RankCores, RanksAreDividedAmongTheNodes) {
  const std::vector<CoreSet> allowed(3, cores(0, 15));
  expect_share(core_share(allowed, 0, kTwoNodes), cores(0, 7), 2);
  expect_share(core_share(allowed, 1, kTwoNodes), cores(0, 7), 2);
  expect_share(core_share(allowed, 2, kTwoNodes), cores(8, 15), 1);
}

TEST(RankCores, NodesAreDividedAmongTheRanks) {
  const std::vector<CoreSet> nodes = {cores(0, 3), cores(4, 7), cores(8, 11), cores(12, 15)};
  const std::vector<CoreSet> allowed(2, cores(2, 15));  // two cores of the first node are taken
  expect_share(core_share(allowed, 0, nodes), cores(2, 7), 1);
  expect_share(core_share(allowed, 1, nodes), cores(8, 15), 1);
}

TEST(RankCores, TheOnlyRankKeepsItsCores) {
  expect_share(core_share(std::vector{cores(0, 15)}, 0, kTwoNodes), cores(0, 15), 1);
}

/// mpirun binds ranks to cores, or to NUMA nodes.
TEST(RankCores, RanksThatALauncherHasBoundKeepTheirCores) {
  const std::vector<CoreSet> allowed = {cores(0, 7), cores(8, 15), cores(8, 15)};
  expect_share(core_share(allowed, 0, kTwoNodes), cores(0, 7), 1);
  expect_share(core_share(allowed, 2, kTwoNodes), cores(8, 15), 2);
}

TEST(RankCores, AProcessCanBeBound) {
  const CoreSet before = cores_of_process();
  ASSERT_GT(before.count(), 0u);
  CoreSet first;
  first.set(before._Find_first());
  bind_process(first);
  const CoreSet bound = cores_of_process();
  const int usable = num_usable_cores();
  bind_process(before);
  EXPECT_EQ(bound, first);
  EXPECT_EQ(usable, 1);
  EXPECT_EQ(cores_of_process(), before);
}

}  // namespace
}  // namespace ebb
