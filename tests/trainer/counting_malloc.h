// Counts every malloc and mmap of the process: allocations that do not go through the device.
// Thread-safe.
#pragma once

#include <cstdint>

namespace ebb::test {

/// Returns false in a build with a sanitizer, which replaces the allocator; the count then stays 0.
bool counts_mallocs();
uint64_t num_mallocs();

}  // namespace ebb::test
