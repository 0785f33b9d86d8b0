// Counts what takes memory behind the device's back: every malloc and mmap of the process.
// Thread-safe.
#pragma once

#include <cstdint>

namespace ebb::test {

/// False where a sanitizer owns the allocator; the count then stays 0.
bool counts_mallocs();
uint64_t num_mallocs();

}  // namespace ebb::test
