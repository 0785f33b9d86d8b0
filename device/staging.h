// How large the rings are through which a CUDA device copies what of a home may not be pinned
// (cuda/staging_ring.h). The plan counts them before there is a device. Pure.
#pragma once

#include <cstddef>
#include <span>

namespace ebb {

inline constexpr size_t kStagingSlots = 4;  ///< of each of the two rings
inline constexpr size_t kSmallestStagingSlotBytes = size_t{64} << 10;
/// For the small buffers that kernels read in place and that are taken after a home.
inline constexpr size_t kPinnedHeadroomBytes = size_t{1} << 20;

/// Pinned memory of both rings.
constexpr size_t staging_bytes(size_t slot_bytes) { return 2 * kStagingSlots * slot_bytes; }

/// Below which no copy is possible.
inline constexpr size_t kLeastPinnedBytes =
    staging_bytes(kSmallestStagingSlotBytes) + kPinnedHeadroomBytes;

/// The next smaller slot, in whole pages. REQUIRES: it is not the smallest.
size_t smaller_staging_slot(size_t slot_bytes);

/// Of rings that together are an eighth of the limit, or as much less as leaves the headroom of the
/// room there is. The smallest where there is less room still; REQUIRES of the caller to look.
size_t staging_slot_bytes(size_t limit_bytes, size_t room_bytes);

/// Both rings where `home_bytes` cannot be pinned whole beside the buffers that are, each of those
/// in pages of its own; 0 where they can, as far as the limit goes.
size_t planned_staging_bytes(size_t limit_bytes, std::span<const size_t> pinned_buffers,
                             size_t home_bytes);

}  // namespace ebb
