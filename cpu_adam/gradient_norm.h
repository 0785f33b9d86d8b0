// Global-norm clipping as in PyTorch, from the sums of squares of fixed pieces. Pure functions,
// thread-safe; nothing allocates.
#pragma once

#include <span>

namespace ebb {

/// The sum of the partials in order, so the result does not depend on the addresses of the pieces.
/// NaN and Inf propagate.
double sum_in_order(std::span<const double> partials);

/// The square root of sum_in_order(): the global norm if the partials are sums of squares.
double norm_in_order(std::span<const double> squared_partials);

/// The clip factor min(1, max_norm / (norm + 1e-6)), computed in double and rounded once; 1 if
/// max_norm is 0 (clipping off). Throws LogicError if the norm is not finite: callers skip such
/// steps.
float clip_scale(double norm, double max_norm);

}  // namespace ebb
