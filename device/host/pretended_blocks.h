// Blocks of a device that pretends: mapped, as a GPU's are, in a page table of the device's own,
// and they keep their addresses as a GPU's do.
//
// Nothing but copies touches what such a device holds, so copies alone look addresses up, and to
// map a block is a note in the table. (Blocks that kernels on this processor read are moved in its
// own page tables, and every core has to forget where they were: host_blocks.h.) Whatever else
// touches a reserved range faults. Thread-safety: every method may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace ebb {

/// What lies under the addresses that a device has reserved, in ranges of pages of one size.
class PageTable {
 public:
  struct Memory {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  /// Rounded up to whole pages; nothing is under them yet.
  std::byte* reserve(size_t bytes, size_t page_bytes);
  /// REQUIRES: reserve() returned it.
  void release(const std::byte* range) noexcept;
  /// Throws LogicError where no page begins, as the next.
  void map(const std::byte* address, std::byte* memory);
  /// Is that page's memory this?
  bool is_mapped(const std::byte* address, const std::byte* memory) const;
  /// The memory under `address`, and how many of `bytes` are on that page. An address that is not
  /// reserved is that of its memory. Throws LogicError where nothing is mapped.
  Memory find(std::byte* address, size_t bytes) const;

 private:
  struct Range {
    std::byte* begin = nullptr;
    size_t page_bytes = 0;
    std::vector<std::byte*> pages;  // the memory of each; null: none

    size_t bytes() const { return pages.size() * page_bytes; }
  };
  /// Null where the address is not reserved.
  static auto* range_of(auto& ranges, const std::byte* address);
  /// The entry of the page that begins there.
  static auto& page_at(auto& ranges, const std::byte* address);

  mutable std::mutex mutex_;
  std::vector<Range> ranges_;
};

class PretendedBlocks final : public Blocks {
 public:
  /// `memory` holds them all; `table` outlives them. REQUIRES: block_bytes is a multiple of 4 KiB.
  PretendedBlocks(Buffer memory, PageTable& table, size_t block_bytes, uint32_t num_blocks);
  ~PretendedBlocks() override;
  PretendedBlocks(const PretendedBlocks&) = delete;
  PretendedBlocks& operator=(const PretendedBlocks&) = delete;

  std::byte* reserve(size_t bytes) override;
  void map(uint32_t block, std::byte* address, Stream& user) override;
  bool keep_addresses() const override { return true; }
  bool lies_at(uint32_t block, const std::byte* address) const override;
  size_t block_bytes() const override { return block_bytes_; }
  uint32_t num_blocks() const override { return num_blocks_; }

 private:
  std::byte* memory_of(uint32_t block) const { return memory_.data() + block * block_bytes_; }

  const Buffer memory_;
  PageTable& table_;
  const size_t block_bytes_;
  const uint32_t num_blocks_;
  std::mutex mutex_;
  std::vector<const std::byte*> ranges_;
};

}  // namespace ebb
