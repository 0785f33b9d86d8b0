#include "cuda/home_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/cuda_error.h"
#include "cuda/pinned_memory.h"
#include "device/errors.h"
#include "device/host/host_memory.h"
#include "device/staging.h"

namespace ebb {
namespace {

/// Room for them is kept while a home is pinned.
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

HomeMemory::HomeMemory(CudaContext& context, size_t limit_bytes)
    : context_(context), limit_bytes_(limit_bytes) {
  if (limit_bytes >= kLeastPinnedBytes) return;
  throw ConfigError("--pinned " + format_bytes(limit_bytes) + ": copies need at least " +
                    format_bytes(kLeastPinnedBytes) +
                    " of pinned memory, through which everything else then goes");
}

HomeMemory::~HomeMemory() = default;

/// With the lock held.
size_t HomeMemory::room() const {
  return limit_bytes_ > pinned_bytes_ ? limit_bytes_ - pinned_bytes_ : 0;
}

void HomeMemory::count_pinned(size_t bytes, std::string_view tag) {
  std::lock_guard lock(mutex_);
  if (bytes > room()) {
    throw OutOfMemory("pinned", bytes, pinned_bytes_, limit_bytes_, std::string(tag),
                      "raise --pinned");
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

/// False where the driver refuses: smaller ones may do, which leave small buffers their room. Of
/// the smallest, throws OutOfMemory.
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

/// With the lock held.
bool HomeMemory::try_pin(std::byte* data, size_t bytes) {
  if (try_to_pin(data, bytes)) return true;
  pinning_refused_ = true;
  return false;
}

/// With the lock held.
void HomeMemory::make_rings() {
  if (load_) return;
  size_t slot_bytes = staging_slot_bytes(limit_bytes_, room());
  if (const size_t bytes = staging_bytes(slot_bytes); bytes > room()) {
    throw OutOfMemory("pinned", bytes, pinned_bytes_, limit_bytes_, "rings for copies",
                      "raise --pinned");
  }
  while (!try_rings(slot_bytes)) slot_bytes = smaller_staging_slot(slot_bytes);
}

/// From the beginning, as many of the bytes as may be pinned. With the lock held.
size_t HomeMemory::pin(std::byte* data, size_t bytes) {
  if (bytes <= room() && try_pin(data, bytes)) return bytes;
  make_rings();
  try {
    const Headroom headroom(context_.node);
    const size_t spare = room() > kPinnedHeadroomBytes ? room() - kPinnedHeadroomBytes : 0;
    size_t some = std::min(bytes, spare) / kPageBytes * kPageBytes;
    while (some > 0 && !try_pin(data, some)) some = some / 2 / kPageBytes * kPageBytes;
    return some;
  } catch (const OutOfMemory&) {  // the driver pins nothing more
    pinning_refused_ = true;
    return 0;
  }
}

std::byte* HomeMemory::take(size_t bytes, std::string_view tag) {
  std::lock_guard lock(mutex_);
  Range range{.bytes = whole_pages(bytes)};
  std::byte* data = take_near(range.bytes, context_.node, tag);
  try {
    context_.enter();
    range.pinned_bytes = pin(data, range.bytes);
    ranges_.emplace(data, range);
  } catch (...) {
    if (range.pinned_bytes > 0) unpin(data);
    release_pageable(data, range.bytes);
    throw;
  }
  pinned_bytes_ += range.pinned_bytes;
  staged_bytes_ += range.bytes - range.pinned_bytes;
  return data;
}

/// Without the lock: what a ring's thread waits for may take a while, and others copy meanwhile.
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

void HomeMemory::release(std::byte* data) noexcept {
  wait_for_rings();
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(data);
  const Range range = found->second;
  ranges_.erase(found);
  pinned_bytes_ -= range.pinned_bytes;
  staged_bytes_ -= range.bytes - range.pinned_bytes;
  if (range.pinned_bytes > 0) unpin(data);
  release_pageable(data, range.bytes);
}

size_t HomeMemory::alike(const std::byte* memory, size_t bytes, bool& pinned) const {
  pinned = true;
  auto after = ranges_.upper_bound(memory);
  if (after == ranges_.begin()) return bytes;
  const auto& [begin, range] = *std::prev(after);
  const auto offset = static_cast<size_t>(memory - begin);
  if (offset >= range.bytes) return bytes;
  pinned = offset < range.pinned_bytes;
  return std::min(bytes, (pinned ? range.pinned_bytes : range.bytes) - offset);
}

void HomeMemory::copy(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
                      size_t bytes, cudaMemcpyKind kind) {
  const bool loads = kind == cudaMemcpyHostToDevice;
  while (bytes > 0) {
    bool pinned = true;
    size_t part = bytes;
    if (kind != cudaMemcpyDeviceToDevice) {
      std::lock_guard lock(mutex_);
      if (staged_bytes_ > 0) part = alike(loads ? from : to, bytes, pinned);
    }
    if (pinned) {
      EBB_CUDA(cudaMemcpyAsync(to, from, part, kind, stream), "a copy of " + format_bytes(part));
    } else if (loads) {
      load_->load(stream, point, to, from, part);
    } else {
      store_->store(stream, point, to, from, part);
    }
    to += part;
    from += part;
    bytes -= part;
  }
}

}  // namespace ebb
