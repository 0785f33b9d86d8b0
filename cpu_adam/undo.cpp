#include "cpu_adam/undo.h"

#include <algorithm>
#include <optional>

#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/undo_kernel.h"
#include "cpu_adam/undo_tasks.h"
#include "device/errors.h"
#include "device/update_sizes.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

AdamWCoefficients coefficients_of(const AdamWStep& step, const AdamWRange& run) {
  return adamw_coefficients(step, run.decay_factor, run.learning_rate_factor);
}

/// Updates the elements of a task until the log is full.
void update_task(const Planes& planes, std::span<const AdamWRange> runs, const UndoTasks& tasks,
                 int64_t begin, int64_t end) {
  UndoTask& task = tasks.task(begin / kUpdateTaskElements);
  OutlierWriter outliers = tasks.writer(task);
  bool fits = true;
  for_each_part(runs, begin, end, [&](int64_t first, int64_t count, const AdamWRange& run) {
    if (!fits) return;
    const int64_t num_updated =
        update_range_with_log(planes.from(first), count, coefficients_of(tasks.step(), run),
                              tasks.corrections() + first, outliers);
    task.end = first + num_updated;
    fits = num_updated == count;
  });
  task.num_outliers = outliers.num_outliers();
}

/// Rolls back the updates of all tasks of the log. With `step`, updates with `step` instead.
void undo_tasks(ThreadTeam& team, const Planes& planes, std::span<const AdamWRange> runs,
                UndoLog& log, const std::optional<AdamWStep>& step) {
  const UndoTasks tasks(log);
  for_each_task(team, tasks.num_elements(), [&](int64_t begin, int64_t) {
    const UndoTask& task = tasks.task(begin / kUpdateTaskElements);
    OutlierReader outliers = tasks.reader(task);
    for_each_part(runs, begin, task.end, [&](int64_t first, int64_t count, const AdamWRange& run) {
      const AdamWCoefficients made = coefficients_of(tasks.step(), run);
      const AdamWCoefficients instead = step ? coefficients_of(*step, run) : made;
      undo_range(planes.from(first), count, made, step ? &instead : nullptr,
                 tasks.corrections() + first, outliers);
    });
  });
  log.drop();
}

void undo_log(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRange> runs,
              UndoLog& log, const std::optional<AdamWStep>& step) {
  check_update(planes, n, runs, step ? *step : log.step());
  EBB_CHECK(log.is_full() && UndoTasks(log).num_elements() == n,
            "the log does not hold an update of these planes");
  undo_tasks(team, planes, runs, log, step);
}

}  // namespace

bool update_with_log(ThreadTeam& team, const Planes& planes, int64_t n,
                     std::span<const AdamWRange> runs, const AdamWStep& step, UndoLog& log) {
  check_update(planes, n, runs, step);
  EBB_CHECK(
      std::ranges::all_of(runs, [](const AdamWRange& r) { return r.first % kUndoElements == 0; }),
      "runs with an undo log must begin at multiples of 64 elements");
  UndoTasks tasks(log);
  if (!tasks.begin(n, step)) return false;
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    if (tasks.has_room()) update_task(planes, runs, tasks, begin, end);
  });
  if (tasks.has_room()) {
    tasks.fill();
    return true;
  }
  undo_tasks(team, planes, runs, log, {});
  return false;
}

void undo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log) {
  undo_log(team, planes, n, runs, log, {});
}

void redo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log, const AdamWStep& step) {
  undo_log(team, planes, n, runs, log, step);
}

}  // namespace ebb
