// Copies at the speed of memory.
#pragma once

#include <cstddef>

namespace ebb {

/// Copies bytes between ranges that do not overlap. Large copies bypass the caches: the target is
/// written without being read first. Any thread may call this function; it allocates nothing.
void copy_bytes(void* to, const void* from, size_t bytes);

}  // namespace ebb
