// The layout of the memory of an undo log, and the access of tasks to it; private to this folder.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "cpu_adam/undo_outliers.h"

namespace ebb {

/// The progress of a task.
struct UndoTask {
  int64_t end = 0;  ///< elements before it are updated
  int64_t num_outliers = 0;
  uint32_t first_block = kNoOutlierBlock;
};

class UndoTasks {
 public:
  explicit UndoTasks(UndoLog& log) : log_(log) {}

  /// Prepares the log for an update of n elements. Returns false if even the corrections do not
  /// fit.
  [[nodiscard]] bool begin(int64_t n, const AdamWStep& step);
  /// Whether all outliers so far fitted.
  bool has_room() const { return log_.num_taken_ <= log_.num_blocks_; }
  /// Marks the log as full: all elements are updated.
  void fill();

  int64_t num_elements() const { return log_.n_; }
  const AdamWStep& step() const { return log_.step_; }
  uint8_t* corrections() const;
  UndoTask& task(int64_t i) const;
  OutlierWriter writer(UndoTask& task) const;
  OutlierReader reader(const UndoTask& task) const;

 private:
  uint32_t* blocks() const;
  UndoLog& log_;
};

}  // namespace ebb
