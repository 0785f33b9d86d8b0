// Standard normal numbers in vectors.
//
// Thread-safe; nothing is stored.
#pragma once

#include <cstdint>
#include <span>

namespace ebb {

/// Fills `out` with the numbers of the counters first, first + 1, ...: for each counter,
/// normal_pair() of words 0 and 1 and of words 2 and 3 of philox4x32(counter, counter_hi, key). The
/// bits are those of these functions (device/random.h).
void normal_numbers(uint64_t first, uint64_t counter_hi, uint64_t key, std::span<float> out);

}  // namespace ebb
