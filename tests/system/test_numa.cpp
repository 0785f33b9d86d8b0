// Threads and memory on NUMA nodes. The teams in these tests are not bound to cores (kAnyNode), so
// the tests run on any machine. The last test needs HWLOC_SYNTHETIC, which describes another
// machine.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/errors.h"
#include "system/cores.h"
#include "system/numa.h"
#include "system/pages.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

std::vector<NodeThreads> nodes_of(std::initializer_list<int> threads) {
  std::vector<NodeThreads> nodes;
  for (int count : threads) nodes.push_back({NodeThreads::kAnyNode, count});
  return nodes;
}

const std::vector<std::vector<NodeThreads>> kMachines = {
    nodes_of({1}),    nodes_of({4}),       nodes_of({1, 1}),
    nodes_of({8, 8}), nodes_of({3, 5, 1}), nodes_of({64, 64, 64, 64})};

TEST(TasksOfNode, CoverEachTaskOnceInProportionToThreads) {
  for (const auto& nodes : kMachines) {
    int all = 0;
    for (const NodeThreads& node : nodes) all += node.num_threads;
    for (int64_t n : {0, 1, 2, 3, 7, 512, 1009}) {
      int64_t next = 0;
      for (size_t k = 0; k < nodes.size(); ++k) {
        const TaskRange range = tasks_of_node(n, nodes, k);
        EXPECT_EQ(range.first, next);
        const double share = static_cast<double>(n * nodes[k].num_threads) / all;
        EXPECT_LT(std::abs(static_cast<double>(range.last - range.first) - share), 1);
        next = range.last;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(DistributeThreads, IsProportionalToTheCoresOfNodes) {
  const std::vector<NodeThreads> machine = {{0, 8}, {3, 4}};
  for (int threads = 1; threads <= 24; ++threads) {
    int sum = 0;
    for (const NodeThreads& node : distribute_threads(threads, machine)) {
      EXPECT_GE(node.num_threads, 1);
      sum += node.num_threads;
    }
    EXPECT_EQ(sum, threads);
  }
  const std::vector<NodeThreads> all = distribute_threads(12, machine);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].num_threads, 8);
  EXPECT_EQ(all[1].node, 3);
  EXPECT_EQ(distribute_threads(1, machine).size(), 1u);
  EXPECT_THROW(distribute_threads(0, machine), LogicError);
}

/// With a CPU quota the process may use fewer cores than its nodes have.
TEST(MachineNodes, HaveTheCoresOfThisProcess) {
  int cores = 0;
  for (const NodeThreads& node : machine_nodes()) cores += node.num_threads;
  if (std::getenv("HWLOC_SYNTHETIC")) {
    EXPECT_EQ(cores, 8);
  } else {
    EXPECT_GE(cores, num_usable_cores());
  }
}

class TeamOfNodes : public testing::TestWithParam<size_t> {
 protected:
  const std::vector<NodeThreads>& nodes() const { return kMachines[GetParam()]; }
};

// The tasks write plain memory, so that ThreadSanitizer reports a missing order as a race.
TEST_P(TeamOfNodes, RunsEachTaskOnce) {
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  ThreadTeam team(nodes());
  for (int64_t n : {0, 1, 2, 3, 64, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<int> times(static_cast<size_t>(n));
      team.for_each(n, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
      EXPECT_EQ(std::accumulate(times.begin(), times.end(), int64_t{0}), n);
      for (int t : times) ASSERT_EQ(t, 1);
    }
  }
}

TEST_P(TeamOfNodes, WaitsForAllNodesBeforeItThrows) {
  ThreadTeam team(nodes());
  std::atomic<int> running = 0;
  const auto body = [&](int64_t i) {
    if (i == 0) throw std::runtime_error("body");
    ++running;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --running;
  };
  EXPECT_THROW(team.for_each(100, body), std::runtime_error);
  EXPECT_EQ(running, 0);
  std::vector<int> times(100);
  team.for_each(100, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
  EXPECT_EQ(times, std::vector<int>(100, 1));
}

INSTANTIATE_TEST_SUITE_P(Machines, TeamOfNodes, testing::Range(size_t{0}, kMachines.size()));

TEST(MoveToThisNode, KeepsTheContentAndMovesEachPage) {
  constexpr size_t kPages = 200;
  std::byte* const data = reserve_addresses(kPages * kPageBytes);
  commit_memory(data, kPages * kPageBytes, "test");
  for (size_t i = 0; i < kPages * kPageBytes; ++i)
    data[i] = static_cast<std::byte>(i * 7 + i / 251);
  const size_t moved = move_to_this_node(data + 5, kPages * kPageBytes - 10);
  for (size_t i = 0; i < kPages * kPageBytes; ++i) {
    ASSERT_EQ(data[i], static_cast<std::byte>(i * 7 + i / 251)) << i;
  }
  EXPECT_EQ(move_to_this_node(data, 0), 0u);
  release_addresses(data, kPages * kPageBytes);
  if (moved == 0) GTEST_SKIP() << "the system does not let this process move pages";
  EXPECT_EQ(moved, kPages);
}

// The nodes are described but do not exist. Threads cannot be bound to them, but must run.
TEST(SyntheticMachine, OfTwoNodesRunsEachTaskOnce) {
  const char* const machine = std::getenv("HWLOC_SYNTHETIC");
  if (!machine) GTEST_SKIP() << "run with HWLOC_SYNTHETIC=\"node:2 core:4 pu:1\"";
  const tbb::global_control threads_allowed(tbb::global_control::max_allowed_parallelism, 8);
  const std::vector<NodeThreads> nodes = machine_nodes();
  ASSERT_EQ(nodes.size(), 2u) << machine;
  EXPECT_NE(nodes[0].node, nodes[1].node);
  ThreadTeam team(8);
  ASSERT_EQ(team.nodes().size(), 2u);
  EXPECT_EQ(team.nodes()[0].num_threads, 4);
  EXPECT_EQ(team.nodes()[1].num_threads, 4);
  for (int round = 0; round < 100; ++round) {
    std::vector<int> times(64);
    team.for_each(64, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
    ASSERT_EQ(times, std::vector<int>(64, 1));
  }
}

}  // namespace
}  // namespace ebb
