// Fork-join over the cores, and threads for what overlaps (loop_queue.h): the one way host code
// uses several threads.
//
// for_each(n, body) runs body(0) .. body(n - 1), each exactly once, in any order on any of the
// team's threads, and returns when all are done. What a body computes must depend on its index
// alone, so results never depend on the number of threads. Denormals are flushed to zero inside
// bodies. No allocation after the first calls.
//
// On a machine of several NUMA nodes each node has threads of its own, bound to its cores, and runs
// one range of the indices (tasks_of_node): for the same n an index always runs on the same node.
// So memory that body(i) uses in every step can be brought there once, by move_to_this_node() from
// another body(i) of a loop of the same length. On one node no thread is bound to anything.
//
// Thread-safety: a team may be used by one caller at a time; several teams may run side by side.
// Threads that were summoned run beside the caller, and need no more of the team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ebb {

/// Threads that work on one NUMA node.
struct NodeThreads {
  int node = kAnyNode;  ///< as oneTBB numbers them
  int num_threads = 1;
  static constexpr int kAnyNode = -1;
};

/// The machine's nodes as far as this process may use them, with as many threads as cores: one
/// entry where there is one node, or where nothing is known about nodes.
std::vector<NodeThreads> machine_nodes();

/// Deals num_threads >= 1 to the nodes in proportion to their cores. Nodes that get none are left
/// out.
std::vector<NodeThreads> deal_threads(int num_threads, std::span<const NodeThreads> machine);

/// Indices [first, last).
struct TaskRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// Which of n tasks the k-th node runs: consecutive ranges in the order of the nodes, in proportion
/// to their threads.
TaskRange tasks_of_node(int64_t n, std::span<const NodeThreads> nodes, size_t k);

class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);
  /// REQUIRES: at least one node, each with at least one thread.
  explicit ThreadTeam(std::vector<NodeThreads> nodes);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return num_threads_; }
  std::span<const NodeThreads> nodes() const { return nodes_; }

  /// Has `count` threads of the k-th node call run(context, k), as they come free; returns at once.
  /// The caller's thread is none of them, so it may be that no thread comes before it waits.
  /// REQUIRES: the node has others.
  void summon(size_t k, int count, void (*run)(void* context, size_t k), void* context);
  /// Until all of them have returned. REQUIRES: run() does not throw.
  void wait_for_summoned();
  /// As a thread of the first node: bound to it where there are several.
  template <class Function>
  void call_on_first_node(const Function& function) {
    if (nodes_.size() == 1) return function();
    enter_first_node(&function, [](const void* f) { (*static_cast<const Function*>(f))(); });
  }

  template <class Body>
  void for_each(int64_t n, const Body& body) {
    run(n, &body, [](const void* b, int64_t i) { (*static_cast<const Body*>(b))(i); });
  }

 private:
  void run(int64_t n, const void* body, void (*call)(const void*, int64_t));
  void enter_first_node(const void* function, void (*call)(const void*));

  struct Arenas;
  const std::vector<NodeThreads> nodes_;
  int num_threads_;
  std::unique_ptr<Arenas> arenas_;  // null: the caller's thread is all there is
};

/// Moves pages to the memory of the node whose core this thread runs on; their content stays. Pages
/// that the range has only part of move, too. Best effort: returns the number of pages that lie
/// there afterwards. Allocates nothing; any thread may call it.
size_t move_to_this_node(std::byte* data, size_t bytes);

/// Cores this process may use: those of its affinity mask, or fewer where a quota of its cgroup
/// allows less of their time. More threads would all stand still when it is used up.
int num_usable_cores();

/// Flushes denormals to zero on this thread while it lives (x86: FTZ and DAZ).
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned saved_;
};

}  // namespace ebb
