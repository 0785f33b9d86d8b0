#include "cpu_adam/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "device/errors.h"

namespace ebb {

double sum_in_order(std::span<const double> partials) {
  double sum = 0;
  for (double partial : partials) sum += partial;
  return sum;
}

double norm_in_order(std::span<const double> squared_partials) {
  return std::sqrt(sum_in_order(squared_partials));
}

float clip_scale(double norm, double max_norm) {
  EBB_CHECK(max_norm >= 0, "the norm to clip to must be 0 (off) or more");
  if (max_norm == 0) return 1;
  EBB_CHECK(std::isfinite(norm) && norm >= 0, "the norm is not finite");
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace ebb
