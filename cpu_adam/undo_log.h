// What makes an update's inverse exact to the bit: for every element a byte of corrections,
// bits(old) - bits(inverse) modulo 2^32: of the momentum in bits 0 - 2, of the variance in bits
// 3 - 5 (0 .. 6 each), of the master in bits 6 - 7 (0 .. 2). Where one does not fit, all its bits
// are set, and the old 32 bits themselves are an outlier.
//
// The memory is the caller's. It holds the corrections, then for each task of kUpdateTaskElements
// elements where it stands, then blocks of outliers, which tasks take from one pool as they need
// them. So whether an update fits depends on its values and the instruction set, not on threads. Of
// four vectors, word j has the bytes of each one's element j, from the upper end down. Of 64
// elements outliers are in the order of the vectors, of each four the momenta's, then the
// variances', and behind all of these the masters'.
//
// A log belongs to the process that wrote it, and keeps the update's step (t, rate, scale) until it
// is undone or dropped.
//
// Thread-safety: one thread at a time; undo.h's functions and loops share it among their threads.
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

  /// Does it hold an update that can be undone?
  bool is_full() const { return is_full_; }
  /// What the update was made with. REQUIRES: is_full().
  const AdamWStep& step() const;
  /// Forgets the update: it stands.
  void drop() { is_full_ = false; }

  // Of the last update, if it fitted.
  int64_t num_outliers() const { return num_outliers_; }
  size_t used_bytes() const;

 private:
  friend class UndoTasks;  // of undo.h's functions
  std::span<std::byte> memory_;
  bool is_full_ = false;
  int64_t n_ = 0;
  AdamWStep step_;
  uint32_t num_blocks_ = 0;  // of outliers, that there are
  std::atomic<uint32_t> num_taken_ = 0;
  int64_t num_outliers_ = 0;
};

}  // namespace ebb
