// The undo log, which makes the inverse of an update exact to the bit. Each element has a byte of
// corrections, bits(old) - bits(inverse) modulo 2^32: that of the momentum in bits 0 - 2, of the
// variance in bits 3 - 5 (0 .. 6 each), and of the master in bits 6 - 7 (0 .. 2). If a correction
// does not fit, all its bits are set, and the old 32 bits are stored as an outlier.
//
// The caller owns the memory. It contains the corrections, then one UndoTask for each task of
// kUpdateTaskElements elements, then the outlier blocks. Tasks take outlier blocks from this pool
// when they need them, so whether an update fits depends on the values and the instruction set, not
// on threads. Order of the corrections: four SIMD vectors are stored together; word j contains the
// bytes of lane j of these vectors, that of the first vector in the highest byte. Order of the
// outliers of 64 elements: for each four vectors those of the momenta, then those of the variances;
// after all of these, those of the masters.
//
// Only the process that wrote a log can use it. The log keeps the step of the update (t, rate,
// scale) until the update is undone or dropped.
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
  /// REQUIRES: memory aligned to 64 bytes.
  explicit UndoLog(std::span<std::byte> memory);
  UndoLog(const UndoLog&) = delete;
  UndoLog& operator=(const UndoLog&) = delete;

  /// Whether the log contains an update that can be undone.
  bool is_full() const { return is_full_; }
  /// The step of the update. REQUIRES: is_full().
  const AdamWStep& step() const;
  /// Commits the update: it can no longer be undone.
  void drop() { is_full_ = false; }

  // Sizes of the last update, if it fitted.
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
