// Fork-join over the cores: the one way host code uses several threads.
//
// for_each(n, body) runs body(0) .. body(n - 1), each exactly once, in any order on any of the
// team's threads, and returns when all are done. What a body computes must depend on its index
// alone, so results never depend on the number of threads. Denormals are flushed to zero inside
// bodies. No allocation after the first calls.
//
// Thread-safety: a team may be used by one caller at a time; several teams may run side by side.
#pragma once

#include <cstdint>
#include <memory>

namespace ebb {

class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return num_threads_; }

  template <class Body>
  void for_each(int64_t n, const Body& body) {
    run(n, &body, [](const void* b, int64_t i) { (*static_cast<const Body*>(b))(i); });
  }

 private:
  void run(int64_t n, const void* body, void (*call)(const void*, int64_t));

  struct Arena;
  std::unique_ptr<Arena> arena_;
  int num_threads_;
};

/// Cores this process may run on (its affinity mask).
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
