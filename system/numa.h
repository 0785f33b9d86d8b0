// The NUMA nodes of the machine: how many threads each gets, which indices of a loop (tasks) each
// runs, and how memory moves to a node. ThreadTeam uses these functions.
//
// Thread-safe; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

/// Threads that work on one NUMA node.
struct NodeThreads {
  int node = kAnyNode;  ///< oneTBB's number of the node; kAnyNode: threads are not bound to a node
  int num_threads = 1;
  static constexpr int kAnyNode = -1;
};

/// The nodes that this process may use, each with as many threads as the process may use cores of
/// it. If there is only one node, or if the nodes are not known, one entry with kAnyNode.
std::vector<NodeThreads> machine_nodes();

/// Distributes num_threads threads to the nodes of `machine`, in their order and in proportion to
/// their threads there. Nodes that get no thread are left out. REQUIRES: num_threads >= 1.
std::vector<NodeThreads> distribute_threads(int num_threads, std::span<const NodeThreads> machine);

/// Indices [first, last).
struct TaskRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// Which of the n tasks the k-th node runs. The ranges of the nodes are consecutive and have
/// lengths in proportion to the threads of the nodes. A range may be empty. REQUIRES: k <
/// nodes.size().
TaskRange tasks_of_node(int64_t n, std::span<const NodeThreads> nodes, size_t k);

/// Moves the pages of the range [data, data + bytes) to the memory of the node on which the calling
/// thread runs. Their content does not change. A page that is only partly in the range moves as a
/// whole. Pages that cannot move stay where they are. Returns the number of pages that are on that
/// node afterwards. Allocates nothing and throws nothing. The calling thread should be bound to the
/// node, as the threads of a ThreadTeam are.
size_t move_to_this_node(std::byte* data, size_t bytes);

}  // namespace ebb
