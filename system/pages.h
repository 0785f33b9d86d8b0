// Memory pages of the operating system: reservation, allocation, and functions on whole ranges.
// Thread-safe: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ebb {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Reserves addresses without memory: an access to them faults. The range begins at a multiple of
/// kHugePageBytes, so that a move between two ranges can move page tables instead of pages.
/// REQUIRES: bytes is a multiple of kPageBytes.
std::byte* reserve_addresses(size_t bytes);
void release_addresses(std::byte* data, size_t bytes) noexcept;

/// "this process may use 3 GiB of addresses (ulimit -v, RLIMIT_AS): raise this limit"; empty if
/// there is no such limit. Ebb reserves more addresses than memory.
std::string address_limit_text();

/// Maps zero-filled memory at reserved addresses. Throws OutOfMemory ("host").
void commit_memory(std::byte* data, size_t bytes, std::string_view tag);
/// Writes a zero to every page, so that no later access has to wait for the operating system.
void touch_pages(std::byte* data, size_t bytes);

/// Fills the range with a pattern that is a NaN in fp32 and in bf16.
void fill_poison(std::byte* data, size_t bytes);

/// Announces a write to the range to ThreadSanitizer, which cannot see that a block is moved.
void announce_write(std::byte* data, size_t bytes);

}  // namespace ebb
