// The sizes of the two rings of pinned memory (cuda/staging_ring.h) through which a CUDA device
// copies the part of a home that is not pinned. The planner counts the rings before it creates a
// device. Pure functions.
#pragma once

#include <cstddef>
#include <span>

namespace ebb {

inline constexpr size_t kStagingSlots = 4;  ///< per ring
inline constexpr size_t kSmallestStagingSlotBytes = size_t{64} << 10;
/// Reserved for small pinned buffers that are allocated after the home.
inline constexpr size_t kPinnedHeadroomBytes = size_t{1} << 20;

/// The pinned bytes of both rings.
constexpr size_t staging_bytes(size_t slot_bytes) { return 2 * kStagingSlots * slot_bytes; }

/// With fewer pinned bytes no copy is possible.
inline constexpr size_t kLeastPinnedBytes =
    staging_bytes(kSmallestStagingSlotBytes) + kPinnedHeadroomBytes;

/// The next smaller size of a slot, in whole pages. REQUIRES: slot_bytes is not the smallest size.
size_t smaller_staging_slot(size_t slot_bytes);

/// The size of a slot for rings that together take an eighth of the limit. The slots are smaller if
/// the rings and kPinnedHeadroomBytes would exceed `room_bytes`. If even the smallest slots exceed
/// `room_bytes`, the function returns the smallest size, and the caller must check it.
size_t staging_slot_bytes(size_t limit_bytes, size_t room_bytes);

/// The bytes of both rings if the limit does not allow to pin the whole home in addition to
/// `pinned_buffers`, each rounded up to pages; otherwise 0.
size_t planned_staging_bytes(size_t limit_bytes, std::span<const size_t> pinned_buffers,
                             size_t home_bytes);

}  // namespace ebb
