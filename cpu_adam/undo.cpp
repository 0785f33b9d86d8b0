#include "cpu_adam/undo.h"

#include <algorithm>
#include <optional>

#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/undo_kernel.h"
#include "cpu_adam/undo_tasks.h"
#include "device/errors.h"

namespace ebb {
namespace {

AdamWCoefficients coefficients_of(const AdamWStep& step, const AdamWRun& run) {
  return adamw_coefficients(step, run.decay_factor, run.learning_rate_factor);
}

/// Updates a task as far as there is room.
void update_task(const Planes& planes, std::span<const AdamWRun> runs, const UndoTasks& tasks,
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
}

/// Takes back what tasks updated; with `step`, that is made instead.
Loop undo_tasks(const Planes& planes, std::span<const AdamWRun> runs, UndoLog& log,
                const std::optional<AdamWStep>& step) {
  Loop loop = loop_over_tasks(UndoTasks(log).num_elements(), [planes, runs, &log, step](
                                                                 int64_t begin, int64_t) {
    const UndoTasks tasks(log);
    const UndoTask& task = tasks.task(begin / kAdamWTaskElements);
    EscapeReader escapes = tasks.reader(task);
    for_each_part(runs, begin, task.end, [&](int64_t first, int64_t count, const AdamWRun& run) {
      const AdamWCoefficients made = coefficients_of(tasks.step(), run);
      const AdamWCoefficients instead = step ? coefficients_of(*step, run) : made;
      undo_range(planes.from(first), count, made, step ? &instead : nullptr,
                 tasks.corrections() + first, escapes);
    });
  });
  loop.then = [&log] { log.drop(); };
  if (loop.n == 0) log.drop();
  return loop;
}

Loop undo_log(const Planes& planes, int64_t n, std::span<const AdamWRun> runs, UndoLog& log,
              const std::optional<AdamWStep>& step) {
  check_update(planes, n, runs, step ? *step : log.step());
  EBB_CHECK(log.is_full() && UndoTasks(log).num_elements() == n,
            "the log does not hold an update of these planes");
  return undo_tasks(planes, runs, log, step);
}

}  // namespace

Loop logged_update_loop(const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                        const AdamWStep& step, UndoLog& log) {
  check_update(planes, n, runs, step);
  EBB_CHECK(
      std::ranges::all_of(runs, [](const AdamWRun& r) { return r.first % kUndoElements == 0; }),
      "runs that are logged begin at multiples of 64 elements");
  if (!UndoTasks(log).begin(n, step)) return {};
  return loop_over_tasks(n, [planes, runs, &log](int64_t begin, int64_t end) {
    const UndoTasks tasks(log);
    if (tasks.has_room()) update_task(planes, runs, tasks, begin, end);
  });
}

bool end_logged_update(ThreadTeam& team, const Planes& planes, std::span<const AdamWRun> runs,
                       UndoLog& log) {
  UndoTasks tasks(log);
  if (tasks.has_room()) {
    tasks.fill();
  } else {
    run_loop(team, undo_tasks(planes, runs, log, {}));
  }
  return log.is_full();
}

bool update_with_log(ThreadTeam& team, const Planes& planes, int64_t n,
                     std::span<const AdamWRun> runs, const AdamWStep& step, UndoLog& log) {
  const Loop loop = logged_update_loop(planes, n, runs, step, log);
  if (loop.n == 0 && n > 0) return false;
  run_loop(team, loop);
  return end_logged_update(team, planes, runs, log);
}

void undo_update(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                 UndoLog& log) {
  run_loop(team, undo_log(planes, n, runs, log, {}));
}

Loop redo_loop(const Planes& planes, int64_t n, std::span<const AdamWRun> runs, UndoLog& log,
               const AdamWStep& step) {
  return undo_log(planes, n, runs, log, step);
}

void redo_update(ThreadTeam& team, const Planes& planes, int64_t n, std::span<const AdamWRun> runs,
                 UndoLog& log, const AdamWStep& step) {
  run_loop(team, redo_loop(planes, n, runs, log, step));
}

}  // namespace ebb
