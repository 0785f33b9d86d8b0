// Blocks of the host backend: private anonymous memory, moved between addresses with its page
// tables.
//
// Every block has a parking place of its own. A block mapped onto an address where another lies
// sends that one to its parking place first, so no block is ever lost. A vacated address is never a
// hole that another mmap could fall into. Thread-safety: every method may be called from any
// thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "device/budget.h"

namespace ebb {

class HostBlocks final : public Blocks {
 public:
  /// Takes num_blocks * block_bytes from `budget` and gives them back when destroyed. REQUIRES:
  /// block_bytes is a multiple of 4 KiB; the budget outlives the blocks. Throws OutOfMemory.
  HostBlocks(Budget& budget, size_t block_bytes, uint32_t num_blocks, bool poison);
  ~HostBlocks() override;
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  std::byte* reserve(size_t bytes) override;
  void map(uint32_t block, std::byte* address, Stream& user) override;
  size_t block_bytes() const override { return block_bytes_; }
  uint32_t num_blocks() const override { return num_blocks_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Range {
    std::byte* begin = nullptr;
    std::vector<uint32_t> occupants;  // the block at each place, or kNone
  };

  std::byte* parking_place(uint32_t block) const { return parking_ + block * block_bytes_; }
  /// Who lies at a block-aligned place of a reserved range; null where it is no such place.
  uint32_t* occupant_at(const std::byte* address);
  void move(uint32_t block, std::byte* target);

  Budget& budget_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
  const bool poison_;
  std::byte* parking_ = nullptr;

  std::mutex mutex_;
  std::vector<Range> ranges_;
  std::vector<std::byte*> places_;  // where each block lies
};

}  // namespace ebb
