#include "device/host/pretended_blocks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/errors.h"
#include "device/host/host_memory.h"
#include "device/host/quiet_lock.h"

namespace ebb {

std::byte* PageTable::reserve(size_t bytes, size_t page_bytes) {
  const size_t num_pages = std::max<size_t>((bytes + page_bytes - 1) / page_bytes, 1);
  Range range{nullptr, page_bytes, std::vector<std::byte*>(num_pages)};
  std::lock_guard lock(mutex_);
  ranges_.reserve(ranges_.size() + 1);
  range.begin = reserve_addresses(range.bytes());
  return ranges_.emplace_back(std::move(range)).begin;
}

void PageTable::release(const std::byte* range) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(ranges_, range, &Range::begin);
  release_addresses(found->begin, found->bytes());
  ranges_.erase(found);
}

auto* PageTable::range_of(auto& ranges, const std::byte* address) {
  const auto found = std::ranges::find_if(ranges, [address](const Range& range) {
    return address >= range.begin && address < range.begin + range.bytes();
  });
  return found != ranges.end() ? &*found : nullptr;
}

auto& PageTable::page_at(auto& ranges, const std::byte* address) {
  auto* const range = range_of(ranges, address);
  const size_t offset = range != nullptr ? static_cast<size_t>(address - range->begin) : 0;
  EBB_CHECK(range != nullptr && offset % range->page_bytes == 0,
            "a block is mapped at a place of a reserved range");
  return range->pages[offset / range->page_bytes];
}

// Quiet, as this is no order of the work: what the caller did not order is found by what copies do
// to the memory.
void PageTable::map(const std::byte* address, std::byte* memory) {
  QuietLock lock(mutex_);
  page_at(ranges_, address) = memory;
}

bool PageTable::is_mapped(const std::byte* address, const std::byte* memory) const {
  QuietLock lock(mutex_);
  return page_at(ranges_, address) == memory;
}

PageTable::Memory PageTable::find(std::byte* address, size_t bytes) const {
  QuietLock lock(mutex_);
  const Range* const range = range_of(ranges_, address);
  if (range == nullptr) return {address, bytes};
  const auto offset = static_cast<size_t>(address - range->begin);
  std::byte* const page = range->pages[offset / range->page_bytes];
  EBB_CHECK(page != nullptr, "copying where no block is mapped");
  const size_t at = offset % range->page_bytes;
  return {page + at, std::min(bytes, range->page_bytes - at)};
}

PretendedBlocks::PretendedBlocks(Buffer memory, PageTable& table, size_t block_bytes,
                                 uint32_t num_blocks)
    : memory_(std::move(memory)),
      table_(table),
      block_bytes_(block_bytes),
      num_blocks_(num_blocks) {}

PretendedBlocks::~PretendedBlocks() {
  for (const std::byte* range : ranges_) table_.release(range);
}

std::byte* PretendedBlocks::reserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  ranges_.reserve(ranges_.size() + 1);
  std::byte* const range = table_.reserve(bytes, block_bytes_);
  ranges_.push_back(range);
  return range;
}

void PretendedBlocks::map(uint32_t block, std::byte* address, Stream& /*user*/) {
  EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
  table_.map(address, memory_of(block));
}

bool PretendedBlocks::lies_at(uint32_t block, const std::byte* address) const {
  return table_.is_mapped(address, memory_of(block));
}

}  // namespace ebb
