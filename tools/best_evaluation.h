// The lowest evaluation loss of a run, for --save-best and --early-stop. Checkpoints contain it, so
// that a resumed run continues the comparison. Pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace ebb {

struct BestEvaluation {
  double loss = std::numeric_limits<double>::infinity();  ///< infinite: there was no evaluation
  uint64_t step = 0;
  uint64_t num_worse = 0;  ///< evaluations since then
  bool operator==(const BestEvaluation&) const = default;
};

/// Takes an evaluation into account. A loss that is NaN is never the lowest.
inline BestEvaluation after_evaluation(BestEvaluation best, uint64_t step, double loss) {
  if (loss < best.loss) return {.loss = loss, .step = step};
  ++best.num_worse;
  return best;
}

}  // namespace ebb
