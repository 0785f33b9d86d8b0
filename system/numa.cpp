#include "system/numa.h"

#include <sys/syscall.h>
#include <tbb/info.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "device/errors.h"
#include "system/pages.h"

namespace ebb {
namespace {

constexpr int kMovePages = 2;  // MPOL_MF_MOVE of <linux/mempolicy.h>: only pages of this process

int total_threads(std::span<const NodeThreads> nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0,
                         [](int sum, const NodeThreads& node) { return sum + node.num_threads; });
}

}  // namespace

std::vector<NodeThreads> machine_nodes() {
  std::vector<NodeThreads> nodes;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // Under sanitizers oneTBB cannot load the library with which it queries the nodes.
  for (const tbb::numa_node_id id : tbb::info::numa_nodes()) {
    nodes.push_back({id, tbb::info::default_concurrency(id)});
  }
#endif
  if (nodes.size() > 1) return nodes;
  return {{NodeThreads::kAnyNode, tbb::info::default_concurrency()}};
}

TaskRange tasks_of_node(int64_t n, std::span<const NodeThreads> nodes, size_t k) {
  const int64_t all = total_threads(nodes), before = total_threads(nodes.first(k));
  return {n * before / all, n * (before + nodes[k].num_threads) / all};
}

std::vector<NodeThreads> distribute_threads(int num_threads, std::span<const NodeThreads> machine) {
  EBB_CHECK(num_threads >= 1, "a team of no threads");
  std::vector<NodeThreads> distributed;
  for (size_t k = 0; k < machine.size(); ++k) {
    const TaskRange threads = tasks_of_node(num_threads, machine, k);
    const auto count = static_cast<int>(threads.last - threads.first);
    if (count > 0) distributed.push_back({machine[k].node, count});
  }
  return distributed;
}

size_t move_to_this_node(std::byte* data, size_t bytes) {
  unsigned core = 0, node = 0;
  if (bytes == 0 || syscall(SYS_getcpu, &core, &node, nullptr) != 0) return 0;
  constexpr size_t kAtOnce = 64;
  std::array<void*, kAtOnce> pages;
  std::array<int, kAtOnce> targets, states;
  targets.fill(static_cast<int>(node));
  std::byte* at = data - reinterpret_cast<uintptr_t>(data) % kPageBytes;
  size_t num_there = 0;
  while (at < data + bytes) {
    size_t count = 0;
    for (; count < kAtOnce && at < data + bytes; ++count, at += kPageBytes) pages[count] = at;
    // Pages that cannot move (locked pages, a full node) stay on their node. This is slower, but
    // correct.
    if (syscall(SYS_move_pages, 0, count, pages.data(), targets.data(), states.data(), kMovePages) <
        0) {
      break;
    }
    num_there += static_cast<size_t>(std::count(
        states.begin(), states.begin() + static_cast<ptrdiff_t>(count), static_cast<int>(node)));
  }
  return num_there;
}

}  // namespace ebb
