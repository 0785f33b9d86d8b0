// Blocks of the host backend: private anonymous memory. map() moves a block by moving its page
// tables.
//
// Every block has a parking address of its own. If another block is mapped at the target address,
// map() first moves the other block to its parking address, so no block is unmapped. Addresses
// without a block stay reserved, so no other mmap can use them. Thread-safety: every method may be
// called from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "device/budget.h"

namespace ebb {

class HostBlocks final : public Blocks {
 public:
  /// Allocates num_blocks * block_bytes from `budget`; the destructor frees them. REQUIRES:
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
    std::vector<uint32_t> occupants;  // the block mapped at each block-sized part, or kNone
  };

  std::byte* parking_place(uint32_t block) const { return parking_ + block * block_bytes_; }
  /// The entry for the block that is mapped at an address; null if the address is not a multiple of
  /// the block size from the beginning of a reserved range.
  uint32_t* occupant_at(const std::byte* address);
  void move(uint32_t block, std::byte* target);

  Budget& budget_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
  const bool poison_;
  std::byte* parking_ = nullptr;

  std::mutex mutex_;
  std::vector<Range> ranges_;
  std::vector<std::byte*> places_;  // the address of each block
};

}  // namespace ebb
