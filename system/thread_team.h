// A fork-join loop over the cores: the one way in which host code uses several threads for one
// piece of work.
//
// for_each(n, body) runs body(0) .. body(n - 1), each exactly once, and returns when all are done.
// The calls run at the same time, in any order, on the threads of the team; the thread that calls
// for_each() is one of them. What body(i) computes must depend on i alone, so that results do not
// depend on the number of threads. Denormals count as zero inside bodies. Nothing is allocated
// after the first calls.
//
// If bodies throw, for_each() throws one of the exceptions when no body runs any more. Some indices
// may then never run.
//
// On a machine of several NUMA nodes each node has threads of its own, bound to its cores, and runs
// one range of the indices (tasks_of_node). For the same n > 1 an index always runs on the same
// node. So a loop over n indices that calls move_to_this_node() can move the memory of index i to
// that node, and body(i) of all later loops over n indices finds its memory there. On one node no
// thread is bound to cores.
//
// Thread-safety: one caller uses a team at a time; several teams may run at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "system/numa.h"

namespace ebb {

class ThreadTeam {
 public:
  /// Distributes the threads to the nodes of the machine. `num_threads` includes the caller of
  /// for_each(). At most as many threads as the process has cores run at the same time. REQUIRES:
  /// num_threads >= 1.
  explicit ThreadTeam(int num_threads);
  /// REQUIRES: at least one node, each with at least one thread.
  explicit ThreadTeam(std::vector<NodeThreads> nodes);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// The number of threads that the constructor was given, for all nodes together.
  int num_threads() const { return num_threads_; }
  std::span<const NodeThreads> nodes() const { return nodes_; }

  template <class Body>
  void for_each(int64_t n, const Body& body) {
    run(n, &body, [](const void* b, int64_t i) { (*static_cast<const Body*>(b))(i); });
  }

 private:
  void run(int64_t n, const void* body, void (*call)(const void*, int64_t));

  struct Arenas;
  const std::vector<NodeThreads> nodes_;
  int num_threads_;
  std::unique_ptr<Arenas> arenas_;  // null: only the caller's thread works
};

}  // namespace ebb
