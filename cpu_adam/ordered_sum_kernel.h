// The vectorised loops of ordered_sum.h; private to this folder. The calling thread must flush
// denormals. REQUIRES: arguments checked by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu_adam/ordered_sum.h"

namespace ebb {

/// Stores elements [first, first + count) of the finished gradient. Returns the sum of their
/// squares if `with_squares`, otherwise 0.
double round_sums(std::span<const GroupSums> uses, DType sum_type, int64_t first, int64_t count,
                  std::byte* gradient, DType type, bool with_squares);

/// Stores elements [first, first + count) of add_in_order().
void add_groups(const float* before, GroupSums groups, DType sum_type, int64_t first, int64_t count,
                float* sum);

/// The sum of the squares of elements [first, first + count).
double sum_of_squares(const std::byte* gradient, DType type, int64_t first, int64_t count);

}  // namespace ebb
