#include "cuda/home_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/cuda_error.h"
#include "cuda/pinned_memory.h"
#include "device/errors.h"
#include "device/staging.h"
#include "system/pages.h"

namespace ebb {
namespace {

/// Reserves pinned memory for later small buffers while a home is pinned.
class Headroom {
 public:
  /// Throws OutOfMemory.
  explicit Headroom(int node) : data_(take_pinned(kPinnedHeadroomBytes, node, "small buffers")) {}
  ~Headroom() { release_pinned(data_, kPinnedHeadroomBytes); }
  Headroom(const Headroom&) = delete;
  Headroom& operator=(const Headroom&) = delete;

 private:
  std::byte* const data_;
};

}  // namespace

HomeMemory::HomeMemory(CudaContext& context, size_t limit_bytes, size_t piece_bytes)
    : context_(context), limit_bytes_(limit_bytes), piece_bytes_(piece_bytes) {
  EBB_CHECK(piece_bytes > 0 && piece_bytes % kPageBytes == 0, "a piece is whole pages");
  if (limit_bytes >= kLeastPinnedBytes) return;
  throw ConfigError("`pinned_memory` " + format_bytes(limit_bytes) + ": copies need at least " +
                    format_bytes(kLeastPinnedBytes) + " of pinned memory");
}

HomeMemory::~HomeMemory() = default;

/// REQUIRES: the lock is held.
size_t HomeMemory::room() const {
  return limit_bytes_ > pinned_bytes_ ? limit_bytes_ - pinned_bytes_ : 0;
}

void HomeMemory::count_pinned(size_t bytes, std::string_view tag) {
  std::lock_guard lock(mutex_);
  if (bytes > room()) {
    throw OutOfMemory("pinned", bytes, pinned_bytes_, limit_bytes_, std::string(tag),
                      "raise `pinned_memory`");
  }
  pinned_bytes_ += bytes;
}

void HomeMemory::uncount_pinned(size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  pinned_bytes_ -= bytes;
}

size_t HomeMemory::pinned_bytes() const {
  std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

size_t HomeMemory::staged_bytes() const {
  std::lock_guard lock(mutex_);
  return staged_bytes_;
}

/// Makes rings with slots of this size. Returns false if the driver refuses to pin them and the
/// headroom for small buffers; smaller slots may be possible. Throws OutOfMemory if these are the
/// smallest slots.
bool HomeMemory::try_rings(size_t slot_bytes) {
  const bool smallest = slot_bytes == kSmallestStagingSlotBytes;
  try {
    auto load = std::make_unique<StagingRing>(context_, slot_bytes, "ebb load ring");
    auto store = std::make_unique<StagingRing>(context_, slot_bytes, "ebb store ring");
    if (!smallest) Headroom(context_.node);
    load_ = std::move(load), store_ = std::move(store);
  } catch (const OutOfMemory&) {
    if (smallest) throw;
    pinning_refused_ = true;
    return false;
  }
  pinned_bytes_ += staging_bytes(slot_bytes);
  return true;
}

bool HomeMemory::pinning_refused() const {
  std::lock_guard lock(mutex_);
  return pinning_refused_;
}

/// Pins piece after piece, from the end of the pinned part to `end`. Returns false if the driver
/// refuses a piece. REQUIRES: the lock is held.
bool HomeMemory::pin_up_to(std::byte* data, Range& range, size_t end) {
  while (range.pinned_bytes < end) {
    const size_t bytes = std::min(end - range.pinned_bytes, piece_bytes_);
    if (!try_to_pin(data + range.pinned_bytes, bytes)) {
      pinning_refused_ = true;
      return false;
    }
    range.pinned_bytes += bytes;
    pinned_bytes_ += bytes;
  }
  return true;
}

/// Unpins all pieces from `begin` on, which is the beginning of a piece. REQUIRES: the lock is
/// held.
void HomeMemory::unpin_from(std::byte* data, Range& range, size_t begin) noexcept {
  for (size_t at = begin; at < range.pinned_bytes; at += piece_bytes_) unpin(data + at);
  pinned_bytes_ -= range.pinned_bytes - begin;
  range.pinned_bytes = begin;
}

/// REQUIRES: the lock is held.
void HomeMemory::make_rings() {
  if (load_) return;
  size_t slot_bytes = staging_slot_bytes(limit_bytes_, room());
  if (const size_t bytes = staging_bytes(slot_bytes); bytes > room()) {
    throw OutOfMemory("pinned", bytes, pinned_bytes_, limit_bytes_, "staging buffers",
                      "raise `pinned_memory`");
  }
  while (!try_rings(slot_bytes)) slot_bytes = smaller_staging_slot(slot_bytes);
}

/// The driver refused the next piece: tries to pin half of it, then a quarter, and so on. REQUIRES:
/// the lock is held.
void HomeMemory::pin_most(std::byte* data, Range& range) {
  const size_t spare = room() > kPinnedHeadroomBytes ? room() - kPinnedHeadroomBytes : 0;
  const size_t more = std::min(range.bytes - range.pinned_bytes, spare) / kPageBytes * kPageBytes;
  size_t end = range.pinned_bytes + more;
  while (!pin_up_to(data, range, end)) {
    const size_t refused = std::min(end - range.pinned_bytes, piece_bytes_);
    end = range.pinned_bytes + refused / 2 / kPageBytes * kPageBytes;
  }
}

/// Pins as much as possible, from the beginning. REQUIRES: the lock is held.
void HomeMemory::pin(std::byte* data, Range& range) {
  if (range.bytes <= room() && pin_up_to(data, range, range.bytes)) return;
  // The last piece may have used memory that the rings and small buffers need.
  unpin_from(data, range, range.pinned_bytes - std::min(range.pinned_bytes, piece_bytes_));
  make_rings();
  try {
    const Headroom headroom(context_.node);
    pin_most(data, range);
  } catch (const OutOfMemory&) {  // the driver refuses to pin more
    pinning_refused_ = true;
  }
}

/// Pins memory and enters it. If this throws, nothing is pinned.
void HomeMemory::add(std::byte* data, Range range) {
  std::lock_guard lock(mutex_);
  try {
    context_.enter();
    pin(data, range);
    ranges_.emplace(data, range);
  } catch (...) {
    unpin_from(data, range, 0);
    throw;
  }
  staged_bytes_ += range.bytes - range.pinned_bytes;
}

std::byte* HomeMemory::take(size_t bytes, std::string_view tag) {
  const Range range{.bytes = whole_pages(bytes)};
  std::byte* const data = take_near(range.bytes, context_.node, tag);
  try {
    add(data, range);
  } catch (...) {
    release_pageable(data, range.bytes);
    throw;
  }
  return data;
}

void HomeMemory::take_shared(std::byte* data, size_t bytes) {
  add(data, {.bytes = whole_pages(bytes)});
}

/// Does not hold the lock: the wait may be long, and other threads copy meanwhile.
void HomeMemory::wait_for_rings() noexcept {
  StagingRing* rings[2];
  {
    std::lock_guard lock(mutex_);
    rings[0] = load_.get(), rings[1] = store_.get();
  }
  for (StagingRing* ring : rings) {
    if (ring != nullptr) ring->wait();
  }
}

HomeMemory::Range HomeMemory::remove(std::byte* data) noexcept {
  wait_for_rings();
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(data);
  Range range = found->second;
  ranges_.erase(found);
  staged_bytes_ -= range.bytes - range.pinned_bytes;
  unpin_from(data, range, 0);
  return range;
}

void HomeMemory::release(std::byte* data) noexcept { release_pageable(data, remove(data).bytes); }

void HomeMemory::release_shared(std::byte* data) noexcept { remove(data); }

size_t HomeMemory::alike(const std::byte* memory, size_t bytes, bool& pinned) const {
  pinned = true;
  auto after = ranges_.upper_bound(memory);
  if (after == ranges_.begin()) return bytes;
  const auto& [begin, range] = *std::prev(after);
  const auto offset = static_cast<size_t>(memory - begin);
  if (offset >= range.bytes) return bytes;
  pinned = offset < range.pinned_bytes;
  const size_t end_of_piece = (offset / piece_bytes_ + 1) * piece_bytes_;
  const size_t end = pinned ? std::min(range.pinned_bytes, end_of_piece) : range.bytes;
  return std::min(bytes, end - offset);
}

size_t HomeMemory::next_part(const Copy& rest, bool& pinned) const {
  pinned = true;
  if (rest.kind == cudaMemcpyDeviceToDevice) return rest.bytes;
  const std::byte* const host = rest.kind == cudaMemcpyHostToDevice ? rest.from : rest.to;
  std::lock_guard lock(mutex_);
  return alike(host, rest.bytes, pinned);
}

uint64_t HomeMemory::num_entries(const Copy& rest) const {
  bool pinned = true;
  (void)next_part(rest, pinned);
  return pinned ? 1 : StagingRing::kMostEntries;
}

void HomeMemory::copy_part(cudaStream_t stream, StreamPoint& point, Copy& rest) {
  const bool loads = rest.kind == cudaMemcpyHostToDevice;
  bool pinned = true;
  size_t part = next_part(rest, pinned);
  if (pinned) {
    EBB_CUDA(cudaMemcpyAsync(rest.to, rest.from, part, rest.kind, stream),
             "a copy of " + format_bytes(part));
  } else if (loads) {
    part = load_->load(stream, point, rest.to, rest.from, part, !rest.is_in_ring);
  } else {
    part = store_->store(stream, point, rest.to, rest.from, part);
  }
  rest.is_in_ring = !pinned;
  rest.to += part;
  rest.from += part;
  rest.bytes -= part;
}

}  // namespace ebb
