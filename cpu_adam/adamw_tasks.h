// The tasks of updates and the checks of their arguments; private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"
#include "system/thread_team.h"

namespace ebb {

/// Throws LogicError if a plane or the gradient is missing, if weights or gradient have no float
/// type, or if runs do not ascend or are not within the planes. Checks only the runs if there are
/// none or n is 0.
void check_update(const Planes& planes, int64_t n, std::span<const AdamWRange> runs,
                  const AdamWStep& step);

/// Divides n elements into tasks and calls body(begin, end) for each task, on the threads of the
/// team. Returns when all tasks are done.
template <class Body>
void for_each_task(ThreadTeam& team, int64_t n, const Body& body) {
  team.for_each(num_update_tasks(n), [n, &body](int64_t task) {
    const int64_t begin = task * kUpdateTaskElements;
    body(begin, std::min(n, begin + kUpdateTaskElements));
  });
}

/// Calls body(first, count, run) for the parts of the runs in [begin, end), in order.
template <class Body>
void for_each_part(std::span<const AdamWRange> runs, int64_t begin, int64_t end, const Body& body) {
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const AdamWRange& r) { return r.first + r.count <= begin; });
  for (; run != runs.end() && run->first < end; ++run) {
    const int64_t first = std::max(begin, run->first);
    body(first, std::min(end, run->first + run->count) - first, *run);
  }
}

}  // namespace ebb
