// How updates are cut into tasks, and what they ask of their arguments; private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"

namespace ebb {

/// LogicError where there is something to update and a plane is missing or of an unknown type, or
/// where runs do not ascend or leave the planes.
void check_update(const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                  const AdamWStep& step);

inline int64_t num_update_tasks(int64_t n) {
  return (n + kAdamWTaskElements - 1) / kAdamWTaskElements;
}

/// Calls body(begin, end) for the tasks into which n elements are cut.
template <class Body>
Loop loop_over_tasks(int64_t n, const Body& body) {
  return {.n = num_update_tasks(n), .body = [n, body](int64_t task) {
            const int64_t begin = task * kAdamWTaskElements;
            body(begin, std::min(n, begin + kAdamWTaskElements));
          }};
}

/// At once, and as a stream would.
inline void run_loop(ThreadTeam& team, Loop loop) {
  if (loop.n == 0) return;
  team.for_each(loop.n, [&](int64_t i) { loop.body(i); });
  if (loop.then) loop.then();
}

/// Calls body(first, count, run) for the runs' parts in [begin, end), in order.
template <class Body>
void for_each_part(std::span<const AdamWRun> runs, int64_t begin, int64_t end, const Body& body) {
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const AdamWRun& r) { return r.first + r.count <= begin; });
  for (; run != runs.end() && run->first < end; ++run) {
    const int64_t first = std::max(begin, run->first);
    body(first, std::min(end, run->first + run->count) - first, *run);
  }
}

}  // namespace ebb
