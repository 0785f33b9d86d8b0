// The undo log, which makes the inverse of an update exact to the bit. Each element has a byte of
// corrections, bits(old) - bits(inverse) modulo 2^32: that of the momentum in bits 0 - 2, of the
// variance in bits 3 - 5 (0 .. 6 each), and of the master in bits 6 - 7 (0 .. 2). If a correction
// does not fit, or if the new master is a NaN, all bits of the correction are set, and the old 32
// bits are stored as an outlier.
//
// The caller owns the memory, which must live as long as the log. undo_log_bytes() of
// device/update_sizes.h says how many bytes an update needs. The memory contains the corrections,
// then one UndoTask (undo_tasks.h) for each task of kUpdateTaskElements elements, then a pool of
// outlier blocks of kOutlierBlockWords 32-bit words. A task takes an outlier block from the pool
// when it needs one. So whether an update fits depends on the values and the instruction set, not
// on threads.
//
// Order of the corrections: four SIMD vectors are stored together; word j contains the bytes of
// lane j of these vectors, that of the first vector in the highest byte. Order of the outliers of
// kUndoElements elements: for each four vectors those of the momenta, then those of the variances;
// after all of these, those of the masters.
//
// The step of the update and the sizes are members of the UndoLog and are not in the memory. So
// only the same UndoLog can undo the update, and the memory cannot be saved to a file and used
// later.
//
// Thread-safety: one thread at a time; the functions of undo.h share the log among their threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"

namespace ebb {

class UndoLog {
 public:
  /// The log is empty at first. REQUIRES: the memory begins at a multiple of 64 bytes.
  explicit UndoLog(std::span<std::byte> memory);
  UndoLog(const UndoLog&) = delete;
  UndoLog& operator=(const UndoLog&) = delete;

  /// Whether the log contains an update that can be undone.
  bool is_full() const { return is_full_; }
  /// The step of the update in the log. REQUIRES: is_full().
  const AdamWStep& step() const;
  /// Commits the update and empties the log: the update can no longer be undone. Has no effect on
  /// an empty log.
  void drop() { is_full_ = false; }

  // The outliers of the last update for which update_with_log() returned true, and the bytes of its
  // corrections, tasks and outlier blocks. Without meaning after a call that returned false.
  int64_t num_outliers() const { return num_outliers_; }
  size_t used_bytes() const;

 private:
  friend class UndoTasks;  // of undo.h's functions
  std::span<std::byte> memory_;
  bool is_full_ = false;
  int64_t n_ = 0;
  AdamWStep step_;
  uint32_t num_blocks_ = 0;  // all blocks of outliers
  std::atomic<uint32_t> num_taken_ = 0;
  int64_t num_outliers_ = 0;
};

}  // namespace ebb
