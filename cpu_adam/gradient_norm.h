// Global-norm clipping as PyTorch defines it, from partial sums of squares formed in fixed pieces.
// Pure functions, thread-safe; nothing allocates.
#pragma once

#include <span>

namespace ebb {

/// The sum from first to last: pieces are summed in piece order, so placement cannot change it. NaN
/// and Inf propagate.
double sum_in_order(std::span<const double> partials);

/// The square root of sum_in_order(): the global norm where the partials are sums of squares.
double norm_in_order(std::span<const double> squared_partials);

/// min(1, max_norm / (norm + 1e-6)), in double, rounded once; 1 where max_norm is 0 (clipping off).
/// REQUIRES: norm is finite. A step with another norm is skipped before anything is scaled:
/// LogicError.
float clip_scale(double norm, double max_norm);

}  // namespace ebb
