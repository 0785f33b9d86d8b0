// The sizes of the tasks of an update on the host, and of its undo log (cpu_adam/undo_log.h). The
// planner needs these sizes before any update runs. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb {

/// Elements of one task of an update. Tasks begin at multiples of this number, counted from the
/// first element of the planes, so the same threads process the same elements in every step.
inline constexpr int64_t kUpdateTaskElements = 65536;

constexpr int64_t num_update_tasks(int64_t num_elements) {
  return (num_elements + kUpdateTaskElements - 1) / kUpdateTaskElements;
}

/// Elements whose corrections the undo log stores together.
inline constexpr int64_t kUndoElements = 64;
/// 32-bit words of a block of outliers.
inline constexpr uint32_t kOutlierBlockWords = 1024;

/// Bytes of the log before the outliers: a byte of corrections for each element, and one entry for
/// each task.
size_t undo_log_fixed_bytes(int64_t num_elements);
/// Bytes of a log that is large enough for every update with at most `num_outliers` outliers. With
/// 3 x num_elements the log is large enough for any update.
size_t undo_log_bytes(int64_t num_elements, int64_t num_outliers);

}  // namespace ebb
