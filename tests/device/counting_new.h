// Counts the calls of operator new in the process, for tests that code allocates nothing.
// Thread-safe.
#pragma once

#include <cstdint>

namespace ebb {
uint64_t num_news();
}  // namespace ebb
