// The NUMA nodes of the machine: how many threads each gets, which tasks each runs, and how memory
// moves to a node.
//
// Thread-safety: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

/// Threads that work on one NUMA node.
struct NodeThreads {
  int node = kAnyNode;  ///< the number that oneTBB gives the node
  int num_threads = 1;
  static constexpr int kAnyNode = -1;
};

/// The nodes that this process may use, each with as many threads as it has cores. One entry where
/// there is one node, or where the nodes are not known.
std::vector<NodeThreads> machine_nodes();

/// Distributes num_threads >= 1 threads to the nodes in proportion to their cores. Nodes that get
/// no thread are left out.
std::vector<NodeThreads> distribute_threads(int num_threads, std::span<const NodeThreads> machine);

/// Indices [first, last).
struct TaskRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// Which of n tasks the k-th node runs: consecutive ranges in the order of the nodes, in proportion
/// to their threads.
TaskRange tasks_of_node(int64_t n, std::span<const NodeThreads> nodes, size_t k);

/// Moves pages to the memory of the node on which the calling thread runs. Their content does not
/// change. A page that is only partly in the range moves as a whole. Pages that cannot move stay
/// where they are. Returns the number of pages that are on that node afterwards. Allocates nothing.
size_t move_to_this_node(std::byte* data, size_t bytes);

}  // namespace ebb
