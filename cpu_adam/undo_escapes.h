// A task's escapes: blocks of a pool, chained; private to this folder. Word 0 of a block is the
// number of the next one.
//
// Thread-safety: each of these is one thread's; the pool's counter is all that they share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_adam/undo_log.h"
#include "device/errors.h"

namespace ebb {

inline constexpr uint32_t kEscapeBlockWords = 512;
inline constexpr uint32_t kNoEscapeBlock = UINT32_MAX;
/// Of kUndoElements: momentum, variance and master of each.
inline constexpr uint32_t kMostEscapes = 3 * kUndoElements;
/// They and the vector that is stored behind them.
inline constexpr uint32_t kTurnWords = kMostEscapes + 16;

class EscapeWriter {
 public:
  EscapeWriter(uint32_t* blocks, uint32_t num_blocks, std::atomic<uint32_t>& num_taken,
               uint32_t& first)
      : blocks_(blocks), num_blocks_(num_blocks), num_taken_(num_taken), link_(&first) {
    *link_ = kNoEscapeBlock;
  }

  /// Where a turn's escapes, and the vector behind them, may be written: in the log, or `spare`.
  uint32_t* place(uint32_t* spare) const { return left_ >= kTurnWords ? at_ : spare; }

  /// Takes what was written to place(): all of it, or false where no block is free.
  [[nodiscard]] bool take(const uint32_t* words, uint32_t count) {
    if (words != at_) return append(words, count);
    at_ += count;
    left_ -= count;
    num_escapes_ += count;
    return true;
  }

  int64_t num_escapes() const { return num_escapes_; }

 private:
  bool append(const uint32_t* words, uint32_t count) {
    const uint32_t here = std::min(count, left_);
    uint32_t block = kNoEscapeBlock;
    if (here < count) {
      block = num_taken_.fetch_add(1, std::memory_order_relaxed);
      if (block >= num_blocks_) return false;
    }
    std::copy_n(words, here, at_);
    at_ += here;
    left_ -= here;
    if (here < count) {
      *link_ = block;
      link_ = blocks_ + size_t{block} * kEscapeBlockWords;
      *link_ = kNoEscapeBlock;
      at_ = std::copy_n(words + here, count - here, link_ + 1);
      left_ = kEscapeBlockWords - 1 - (count - here);
    }
    num_escapes_ += count;
    return true;
  }

  uint32_t* blocks_;
  uint32_t num_blocks_;
  std::atomic<uint32_t>& num_taken_;
  uint32_t* link_;  // where the number of the next block belongs
  uint32_t* at_ = nullptr;
  uint32_t left_ = 0;
  int64_t num_escapes_ = 0;
};

class EscapeReader {
 public:
  EscapeReader(const uint32_t* blocks, uint32_t first) : blocks_(blocks), next_block_(first) {}
  /// Of these words alone.
  explicit EscapeReader(std::span<const uint32_t> words)
      : at_(words.data()), left_(static_cast<uint32_t>(words.size())) {}

  /// The next `count` words, in `spare` where a block ends between them. What lies behind the last
  /// word is any. REQUIRES: count is less than a block has.
  const uint32_t* peek(size_t count, uint32_t* spare) const {
    if (left_ >= count) return at_;
    std::copy_n(at_, left_, spare);
    if (next_block_ != kNoEscapeBlock)
      std::copy_n(words_of(next_block_), count - left_, spare + left_);
    return spare;
  }
  /// They have been read.
  void skip(size_t count) {
    if (count > left_) {
      count -= left_;
      enter();
    }
    at_ += count;
    left_ -= static_cast<uint32_t>(count);
  }

 private:
  void enter() {
    EBB_CHECK(next_block_ != kNoEscapeBlock, "the log names more escapes than it has");
    at_ = words_of(next_block_);
    next_block_ = at_[-1];
    left_ = kEscapeBlockWords - 1;
  }
  const uint32_t* words_of(uint32_t block) const {
    return blocks_ + size_t{block} * kEscapeBlockWords + 1;
  }

  const uint32_t* blocks_ = nullptr;
  const uint32_t* at_ = nullptr;
  uint32_t left_ = 0;
  uint32_t next_block_ = kNoEscapeBlock;
};

}  // namespace ebb
