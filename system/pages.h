// Pages from the operating system, and what the host backend does to whole ranges of them.
// Thread-safe: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Addresses without memory: touching them faults. Begins at a multiple of kHugePageBytes, so that
/// a move between two ranges can move page tables instead of pages. REQUIRES: bytes is a multiple
/// of kPageBytes.
std::byte* reserve_addresses(size_t bytes);
void release_addresses(std::byte* data, size_t bytes) noexcept;

/// Puts zero-filled memory under reserved addresses. Throws OutOfMemory ("host").
void commit_memory(std::byte* data, size_t bytes, std::string_view tag);
/// Touches every page, so that no later access has to wait for the operating system.
void touch_pages(std::byte* data, size_t bytes);

/// A pattern that is a NaN in fp32 and in bf16.
void fill_poison(std::byte* data, size_t bytes);

/// Tells ThreadSanitizer that the range is about to change hands, as a write it cannot see by
/// itself.
void announce_write(std::byte* data, size_t bytes);

}  // namespace ebb
