// A task's escapes: blocks of a pool, chained; private to this folder. Word 0 of a block is the
// number of the next one.
//
// A turn's escapes, of kUndoElements, lie in one block: it begins the next one where what is left
// might not hold them, and the reader decides alike. So nothing is copied: a load that spans
// several fresh stores waits until they are in the cache, which they reach behind the planes'
// stores.
//
// Thread-safety: each of these is one thread's; the pool's counter is all that they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu_adam/undo_log.h"
#include "device/errors.h"

namespace ebb {

inline constexpr uint32_t kEscapeBlockWords = 1024;
inline constexpr uint32_t kNoEscapeBlock = UINT32_MAX;
/// What a turn may need: momentum, variance and master of each element. A vector that is stored or
/// read at its last escape so far ends in the room of those that may come.
inline constexpr uint32_t kTurnWords = 3 * kUndoElements;
/// A block that is left has so many escapes, or more.
inline constexpr uint32_t kLeastOfEscapeBlock = kEscapeBlockWords - kTurnWords;

class EscapeWriter {
 public:
  EscapeWriter(uint32_t* blocks, uint32_t num_blocks, std::atomic<uint32_t>& num_taken,
               uint32_t& first)
      : blocks_(blocks), num_blocks_(num_blocks), num_taken_(num_taken), link_(&first) {
    *link_ = kNoEscapeBlock;
  }

  /// Where a turn's escapes belong; null where no block is free.
  [[nodiscard]] uint32_t* begin_turn() {
    if (end_ - at_ < kTurnWords && !enter_next()) return nullptr;
    return at_;
  }
  /// Behind the turn's last.
  void end_turn(uint32_t* end) {
    num_escapes_ += end - at_;
    at_ = end;
  }

  int64_t num_escapes() const { return num_escapes_; }

 private:
  bool enter_next() {
    const uint32_t block = num_taken_.fetch_add(1, std::memory_order_relaxed);
    if (block >= num_blocks_) return false;
    *link_ = block;
    link_ = blocks_ + size_t{block} * kEscapeBlockWords;
    *link_ = kNoEscapeBlock;
    at_ = link_ + 1;
    end_ = link_ + kEscapeBlockWords;
    return true;
  }

  uint32_t* blocks_;
  uint32_t num_blocks_;
  std::atomic<uint32_t>& num_taken_;
  uint32_t* link_;  // where the number of the next block belongs
  uint32_t* at_ = nullptr;
  uint32_t* end_ = nullptr;
  int64_t num_escapes_ = 0;
};

class EscapeReader {
 public:
  EscapeReader(const uint32_t* blocks, uint32_t first) : blocks_(blocks), next_block_(first) {}

  /// The turn's escapes. What lies behind the last of them is any.
  const uint32_t* begin_turn() {
    if (end_ - at_ < kTurnWords) enter_next();
    return at_;
  }
  void end_turn(const uint32_t* end) { at_ = end; }

 private:
  void enter_next() {
    EBB_CHECK(next_block_ != kNoEscapeBlock, "the log names more escapes than it has");
    const uint32_t* const block = blocks_ + size_t{next_block_} * kEscapeBlockWords;
    next_block_ = block[0];
    at_ = block + 1;
    end_ = block + kEscapeBlockWords;
  }

  const uint32_t* blocks_;
  const uint32_t* at_ = nullptr;
  const uint32_t* end_ = nullptr;
  uint32_t next_block_;
};

}  // namespace ebb
