#include "device/host/host_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "device/errors.h"
#include "system/pages.h"

namespace ebb {

HostBlocks::HostBlocks(Budget& budget, size_t block_bytes, uint32_t num_blocks, bool poison)
    : budget_(budget), block_bytes_(block_bytes), num_blocks_(num_blocks), poison_(poison) {
  const size_t bytes = block_bytes * num_blocks;
  budget_.take(bytes, "blocks");
  try {
    places_.resize(num_blocks);
    parking_ = reserve_addresses(std::max(bytes, kPageBytes));
    if (bytes > 0) {
      commit_memory(parking_, bytes, "blocks");
      touch_pages(parking_, bytes);
    }
  } catch (...) {
    if (parking_ != nullptr) release_addresses(parking_, std::max(bytes, kPageBytes));
    budget_.give_back(bytes);
    throw;
  }
  for (uint32_t i = 0; i < num_blocks; ++i) places_[i] = parking_place(i);
}

HostBlocks::~HostBlocks() {
  for (uint32_t i = 0; i < num_blocks_; ++i) announce_write(places_[i], block_bytes_);
  for (const Range& range : ranges_) {
    release_addresses(range.begin, range.occupants.size() * block_bytes_);
  }
  const size_t bytes = block_bytes_ * num_blocks_;
  release_addresses(parking_, std::max(bytes, kPageBytes));
  budget_.give_back(bytes);
}

std::byte* HostBlocks::reserve(size_t bytes) {
  const size_t num_places = std::max<size_t>((bytes + block_bytes_ - 1) / block_bytes_, 1);
  Range range{.begin = nullptr, .occupants = std::vector<uint32_t>(num_places, kNone)};
  std::lock_guard lock(mutex_);
  ranges_.reserve(ranges_.size() + 1);
  range.begin = reserve_addresses(num_places * block_bytes_);
  return ranges_.emplace_back(std::move(range)).begin;
}

uint32_t* HostBlocks::occupant_at(const std::byte* address) {
  for (Range& range : ranges_) {
    if (address < range.begin) continue;
    const auto offset = static_cast<size_t>(address - range.begin);
    if (offset >= range.occupants.size() * block_bytes_) continue;
    return offset % block_bytes_ == 0 ? &range.occupants[offset / block_bytes_] : nullptr;
  }
  return nullptr;
}

void HostBlocks::map(uint32_t block, std::byte* address, Stream& /*user*/) {
  std::lock_guard lock(mutex_);
  EBB_CHECK(block < num_blocks_, "there is no block " + std::to_string(block));
  uint32_t* occupant = occupant_at(address);
  EBB_CHECK(occupant != nullptr, "the address is not that of a block in a reserved range");
  if (*occupant != block) {
    if (*occupant != kNone) move(*occupant, parking_place(*occupant));
    move(block, address);
  }
  if (poison_) fill_poison(address, block_bytes_);
}

// The source addresses stay reserved (DONTUNMAP). mprotect() makes accesses to them fault;
// otherwise they would read zeros.
void HostBlocks::move(uint32_t block, std::byte* target) {
  std::byte* source = places_[block];
  announce_write(source, block_bytes_);
  void* moved = mremap(source, block_bytes_, block_bytes_,
                       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target);
  if (moved == MAP_FAILED || mprotect(source, block_bytes_, PROT_NONE) != 0) {
    throw DeviceError("cannot move block " + std::to_string(block) + " of " +
                      format_bytes(block_bytes_) + ": " + std::strerror(errno) +
                      "; try a larger chunk size (or a higher vm.max_map_count)");
  }
  if (uint32_t* vacated = occupant_at(source)) *vacated = kNone;
  if (uint32_t* occupied = occupant_at(target)) *occupied = block;
  places_[block] = target;
}

}  // namespace ebb
