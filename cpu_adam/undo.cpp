#include "cpu_adam/undo.h"

#include <algorithm>
#include <atomic>

#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/undo_kernel.h"
#include "cpu_adam/undo_tasks.h"
#include "device/errors.h"

namespace ebb {
namespace {

AdamWCoefficients coefficients_of(const AdamWStep& step, const AdamWRun& run) {
  return adamw_coefficients(step, run.decay_factor, run.learning_rate_factor);
}

/// Updates a task as far as there is room; false where that is not the whole of it.
bool update_task(const Planes& planes, std::span<const AdamWRun> runs, const UndoTasks& tasks,
                 int64_t begin, int64_t end) {
  UndoTask& task = tasks.task(begin / kAdamWTaskElements);
  EscapeWriter escapes = tasks.writer(task);
  bool fits = true;
  for_each_part(runs, begin, end, [&](int64_t first, int64_t count, const AdamWRun& run) {
    if (!fits) return;
    const int64_t num_updated =
        update_range_with_log(planes.from(first), count, coefficients_of(tasks.step(), run),
                              tasks.corrections() + first, escapes);
    task.end = first + num_updated;
    fits = num_updated == count;
  });
  task.num_escapes = escapes.num_escapes();
  return fits;
}

/// Takes back what tasks updated; with `step`, that is made instead.
void undo_tasks(ThreadTeam& team, const Planes& planes, std::span<const AdamWRun> runs,
                UndoTasks& tasks, const AdamWStep* step) {
  for_each_task(team, tasks.num_elements(), [&](int64_t begin, int64_t) {
    const UndoTask& task = tasks.task(begin / kAdamWTaskElements);
    EscapeReader escapes = tasks.reader(task);
    for_each_part(runs, begin, task.end, [&](int64_t first, int64_t count, const AdamWRun& run) {
      const AdamWCoefficients instead = coefficients_of(step ? *step : tasks.step(), run);
      undo_range(planes.from(first), count, coefficients_of(tasks.step(), run),
                 step ? &instead : nullptr, tasks.corrections() + first, escapes);
    });
  });
  tasks.empty();
}

void undo_log(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
              UndoLog& log, const AdamWStep* step) {
  check_update(planes, n, runs, step ? *step : log.step());
  UndoTasks tasks(log);
  EBB_CHECK(log.is_full() && tasks.num_elements() == n,
            "the log does not hold an update of these planes");
  undo_tasks(team, planes, runs, tasks, step);
}

}  // namespace

bool update_with_log(ThreadTeam& team, const Planes& planes, int64_t n,
                     std::span<const AdamWRun> runs, const AdamWStep& step, UndoLog& log) {
  check_update(planes, n, runs, step);
  EBB_CHECK(
      std::ranges::all_of(runs, [](const AdamWRun& r) { return r.first % kUndoElements == 0; }),
      "runs that are logged begin at multiples of 64 elements");
  UndoTasks tasks(log);
  if (!tasks.begin(n, step)) return false;
  std::atomic<bool> fits = true;
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    if (fits && !update_task(planes, runs, tasks, begin, end)) fits = false;
  });
  if (fits) {
    tasks.fill();
  } else {
    undo_tasks(team, planes, runs, tasks, nullptr);
  }
  return fits;
}

void undo_update(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                 UndoLog& log) {
  undo_log(team, planes, n, runs, log, nullptr);
}

void redo_update(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                 UndoLog& log, const AdamWStep& step) {
  undo_log(team, planes, n, runs, log, &step);
}

}  // namespace ebb
