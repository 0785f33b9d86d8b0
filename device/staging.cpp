#include "device/staging.h"

#include <algorithm>

#include "device/driver_memory.h"

namespace ebb {
namespace {

// The copy of a slot of this size takes much longer than the start of a copy.
constexpr size_t kLargestSlotBytes = size_t{4} << 20;
constexpr size_t kShareOfLimit = 8;

size_t page_ends(size_t bytes) {
  return (bytes + kPinnedPageBytes - 1) / kPinnedPageBytes * kPinnedPageBytes;
}

/// The largest size of a slot that is at most `bytes`, within the limits of sizes.
size_t slot_of(size_t bytes) {
  return std::clamp(bytes / kPinnedPageBytes * kPinnedPageBytes, kSmallestStagingSlotBytes,
                    kLargestSlotBytes);
}

}  // namespace

size_t smaller_staging_slot(size_t slot_bytes) { return slot_of(slot_bytes / 2); }

size_t staging_slot_bytes(size_t limit_bytes, size_t room_bytes) {
  size_t slot_bytes = slot_of(limit_bytes / staging_bytes(kShareOfLimit));
  while (slot_bytes > kSmallestStagingSlotBytes &&
         staging_bytes(slot_bytes) + kPinnedHeadroomBytes > room_bytes) {
    slot_bytes = smaller_staging_slot(slot_bytes);
  }
  return slot_bytes;
}

size_t planned_staging_bytes(size_t limit_bytes, std::span<const size_t> pinned_buffers,
                             size_t home_bytes) {
  size_t pinned_bytes = 0;
  for (const size_t bytes : pinned_buffers) pinned_bytes += page_ends(bytes);
  const size_t room_bytes = limit_bytes - std::min(limit_bytes, pinned_bytes);
  if (page_ends(home_bytes) <= room_bytes) return 0;
  return staging_bytes(staging_slot_bytes(limit_bytes, room_bytes));
}

}  // namespace ebb
