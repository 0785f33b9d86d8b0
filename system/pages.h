// Memory pages of the operating system: reserved addresses, memory at these addresses, and
// functions on ranges of bytes. To allocate: reserve_addresses(), commit_memory(), touch_pages().
// To free: release_addresses().
//
// Thread-safety: any number of threads may call these functions for different ranges.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ebb {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Reserves addresses without memory: an access to them faults. The range begins at a multiple of
/// kHugePageBytes. So mremap() can move memory between two ranges by whole page tables, which is
/// faster than page by page. Throws OutOfMemory. REQUIRES: bytes is a multiple of kPageBytes.
std::byte* reserve_addresses(size_t bytes);
/// Gives reserved addresses and their memory back to the operating system. REQUIRES: data and bytes
/// are multiples of kPageBytes.
void release_addresses(std::byte* data, size_t bytes) noexcept;

/// A text for messages, because Ebb reserves more addresses than memory: "this process may use 3
/// GiB of addresses (ulimit -v, RLIMIT_AS): raise this limit". Empty if there is no such limit.
std::string address_limit_text();

/// Makes reserved addresses usable. Their memory is zero at first. `tag` says in the error what the
/// memory is for. Throws OutOfMemory of the kind "host". REQUIRES: data and bytes are multiples of
/// kPageBytes, and the range is reserved.
void commit_memory(std::byte* data, size_t bytes, std::string_view tag);
/// Writes a zero byte to every page, so that the operating system gives it memory now and not at a
/// later access. All usable cores touch a large range, because the system clears each page during
/// its first access. The pages lie on the NUMA nodes of the threads that touch them, if no policy
/// was set for the range. Throws std::bad_alloc if the threads cannot be made. REQUIRES: the
/// content of the range is not needed.
void touch_pages(std::byte* data, size_t bytes);

/// Fills the range with a pattern that is a NaN in fp32, bf16 and fp16.
void fill_poison(std::byte* data, size_t bytes);

/// Tells ThreadSanitizer that the calling thread writes the range. Called before memory is moved or
/// released, which ThreadSanitizer cannot see. So it finds an access by another thread that no
/// event orders before. Does nothing in other builds.
void announce_write(std::byte* data, size_t bytes);

}  // namespace ebb
