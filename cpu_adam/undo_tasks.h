// How a log's memory is laid out, and who writes where; private to this folder.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "cpu_adam/undo_outliers.h"

namespace ebb {

/// Where a task stands.
struct UndoTask {
  int64_t end = 0;  ///< elements before it are updated
  int64_t num_outliers = 0;
  uint32_t first_block = kNoOutlierBlock;
};

class UndoTasks {
 public:
  explicit UndoTasks(UndoLog& log) : log_(log) {}

  /// For n elements, none of them updated; false where not even corrections have room.
  [[nodiscard]] bool begin(int64_t n, const AdamWStep& step);
  /// Had every outlier so far a place?
  bool has_room() const { return log_.num_taken_ <= log_.num_blocks_; }
  /// All of them are updated.
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
