// The pieces into which an update on the host is cut, and the memory that its undo log takes
// (cpu_adam/undo_log.h). The planner counts them before there is an update. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb {

/// Elements of one task of an update. Tasks are cut at multiples of this number, counted from the
/// first element of the planes: so the same threads get the same elements in every step.
inline constexpr int64_t kUpdateTaskElements = 65536;

constexpr int64_t num_update_tasks(int64_t num_elements) {
  return (num_elements + kUpdateTaskElements - 1) / kUpdateTaskElements;
}

/// Elements whose corrections the undo log stores together.
inline constexpr int64_t kUndoElements = 64;
/// 32-bit words of a block of outliers.
inline constexpr uint32_t kOutlierBlockWords = 1024;
/// Outliers that kUndoElements may have: momentum, variance and master of each.
inline constexpr uint32_t kMostOutliersTogether = 3 * kUndoElements;

/// Bytes of the log before the outliers: a byte of corrections for each element, and one entry for
/// each task.
size_t undo_log_fixed_bytes(int64_t num_elements);
/// Bytes of a log in which every update fits that has at most `num_outliers`; any update fits with
/// 3 x num_elements.
size_t undo_log_bytes(int64_t num_elements, int64_t num_outliers);

}  // namespace ebb
