// A fork-join loop over the cores: the one way in which host code uses several threads for one
// piece of work.
//
// for_each(n, body) runs body(0) .. body(n - 1), each exactly once, in any order on any of the
// team's threads, and returns when all are done. What a body computes must depend on its index
// alone, so results never depend on the number of threads. Denormals are flushed to zero inside
// bodies. If bodies throw, for_each() throws one of the exceptions when all threads are finished.
// Nothing is allocated after the first calls.
//
// On a machine of several NUMA nodes each node has threads of its own, bound to its cores, and runs
// one range of the indices (tasks_of_node): for the same n an index always runs on the same node.
// So memory that body(i) uses in every step can be brought there once, by move_to_this_node() from
// another body(i) of a loop of the same length. On one node no thread is bound to anything.
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
  explicit ThreadTeam(int num_threads);
  /// REQUIRES: at least one node, each with at least one thread.
  explicit ThreadTeam(std::vector<NodeThreads> nodes);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

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
