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

std::byte** PageTable::page_at(const std::byte* address) {
  Range* const range = range_of(ranges_, address);
  if (range == nullptr) return nullptr;
  const auto offset = static_cast<size_t>(address - range->begin);
  return offset % range->page_bytes == 0 ? &range->pages[offset / range->page_bytes] : nullptr;
}

// Quiet, as this is no order of the work: a move and a copy that the caller did not order are found
// by what they do to the memory.
void PageTable::map(const std::byte* address, std::byte* memory, const std::byte* before) {
  QuietLock lock(mutex_);
  std::byte** const page = page_at(address);
  EBB_CHECK(page != nullptr, "a block is mapped at a place of a reserved range");
  // Another's memory may lie there by now.
  if (std::byte** const old = page_at(before); old != nullptr && *old == memory) *old = nullptr;
  *page = memory;
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
      num_blocks_(num_blocks),
      places_(num_blocks) {}

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

void PretendedBlocks::map(uint32_t block, std::byte* address) {
  EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
  std::byte* const memory = memory_.data() + block * block_bytes_;
  table_.map(address, memory, places_[block]);
  places_[block] = address;
  announce_write(memory, block_bytes_);
}

}  // namespace ebb
