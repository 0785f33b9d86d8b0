// Counts every operator new of the process: what "allocates nothing" is tested with. Thread-safe.
#pragma once

#include <cstdint>

namespace ebb {
uint64_t num_news();
}  // namespace ebb
