// Clipping by the global norm as in PyTorch. The norm is computed from partial norms: the sum of
// the squares of each piece of the gradients. Pure functions, thread-safe; nothing allocates.
#pragma once

#include <span>

namespace ebb {

/// The sum of the values, added from the first to the last; 0 if there are none. The callers pass
/// the values in the order of the pieces, so the bits of the sum do not depend on where or when the
/// pieces were computed. NaN and Inf propagate.
double sum_in_order(std::span<const double> partials);

/// The global norm: the square root of sum_in_order() of the partial norms, which are sums of
/// squares. The caller divides it by the loss scale.
double norm_in_order(std::span<const double> squared_partials);

/// The clip factor min(1, max_norm / (norm + 1e-6)), computed in double and rounded once to float;
/// 1 if max_norm is 0, because clipping is then off. REQUIRES: max_norm is not negative; if it is
/// not 0, the norm is finite, because callers skip steps whose norm is not finite. Otherwise throws
/// LogicError.
float clip_scale(double norm, double max_norm);

}  // namespace ebb
