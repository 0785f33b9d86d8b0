// The outliers of a task, in a chain of blocks from a pool; private to this folder. Word 0 of a
// block is the number of the next block.
//
// All outliers of a group of kUndoElements elements are in one block. If they might not fit in the
// current block, the group begins the next block; the reader decides in the same way. So outliers
// are written in place and never copied: a load that spans several recent stores would wait until
// the stores, and the stores of the planes before them, have reached the cache.
//
// Thread-safety: only one thread uses a writer or a reader. Writers share only the counter of the
// pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu_adam/undo_log.h"
#include "device/adamw_planes.h"
#include "device/errors.h"
#include "device/update_sizes.h"

namespace ebb {

inline constexpr uint32_t kNoOutlierBlock = UINT32_MAX;

class OutlierWriter {
 public:
  OutlierWriter(uint32_t* blocks, uint32_t num_blocks, std::atomic<uint32_t>& num_taken,
                uint32_t& first)
      : blocks_(blocks), num_blocks_(num_blocks), num_taken_(num_taken), link_(&first) {
    *link_ = kNoOutlierBlock;
  }

  /// Returns where to write the outliers of the next group; null if no block is free.
  [[nodiscard]] uint32_t* begin_group() {
    if (end_ - at_ < kMostOutliersTogether && !enter_next()) return nullptr;
    return at_;
  }
  /// `end`: the end of the outliers of the group.
  void end_group(uint32_t* end) {
    num_outliers_ += end - at_;
    at_ = end;
  }

  int64_t num_outliers() const { return num_outliers_; }

 private:
  bool enter_next() {
    const uint32_t block = num_taken_.fetch_add(1, std::memory_order_relaxed);
    if (block >= num_blocks_) return false;
    *link_ = block;
    link_ = blocks_ + size_t{block} * kOutlierBlockWords;
    *link_ = kNoOutlierBlock;
    at_ = link_ + 1;
    end_ = link_ + kOutlierBlockWords;
    return true;
  }

  uint32_t* blocks_;
  uint32_t num_blocks_;
  std::atomic<uint32_t>& num_taken_;
  uint32_t* link_;  // where to write the number of the next block
  uint32_t* at_ = nullptr;
  uint32_t* end_ = nullptr;
  int64_t num_outliers_ = 0;
};

class OutlierReader {
 public:
  OutlierReader(const uint32_t* blocks, uint32_t first) : blocks_(blocks), next_block_(first) {}

  /// Returns the outliers of the next group. The words after the last outlier are undefined.
  const uint32_t* begin_group() {
    if (end_ - at_ < kMostOutliersTogether) enter_next();
    return at_;
  }
  void end_group(const uint32_t* end) { at_ = end; }

 private:
  void enter_next() {
    EBB_CHECK(next_block_ != kNoOutlierBlock, "the log names more outliers than it has");
    const uint32_t* const block = blocks_ + size_t{next_block_} * kOutlierBlockWords;
    next_block_ = block[0];
    at_ = block + 1;
    end_ = block + kOutlierBlockWords;
  }

  const uint32_t* blocks_;
  const uint32_t* at_ = nullptr;
  const uint32_t* end_ = nullptr;
  uint32_t next_block_;
};

}  // namespace ebb
