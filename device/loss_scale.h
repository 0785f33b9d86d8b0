// Dynamic loss scaling for fp16, as apex and PyTorch's GradScaler do it: the loss's gradient is
// multiplied with a power of two, so that small gradients do not vanish in fp16; the scale is
// halved where a gradient overflowed (the step is skipped), and doubled after many steps in which
// none did. A plain value; pure functions. As a scale is a power of two it is taken out exactly.
#pragma once

#include <cstdint>

#include "device/dtype.h"

namespace ebb {

struct LossScale {
  uint32_t value = 1;
  /// Since the scale was halved or due to be doubled: at its largest it is due, too, and stays.
  uint32_t num_good_steps = 0;
  bool operator==(const LossScale&) const = default;
};

inline constexpr uint32_t kInitialLossScale = 1u << 16;
inline constexpr uint32_t kLargestLossScale = 1u << 24;  // where apex stops
inline constexpr uint32_t kGoodStepsToDouble = 2000;

/// That training begins with. Only fp16 needs one: fp32 and bf16 have exponents enough.
constexpr LossScale initial_loss_scale(DType weight_type, uint32_t of_fp16 = kInitialLossScale) {
  return {.value = weight_type == DType::F16 ? of_fp16 : 1};
}

constexpr LossScale after_good_step(LossScale scale) {
  if (++scale.num_good_steps < kGoodStepsToDouble) return scale;
  return {.value = scale.value < kLargestLossScale ? 2 * scale.value : scale.value};
}

/// REQUIRES: value > 1. Below, gradients would be too large for fp16 without a scale.
constexpr LossScale after_overflow(LossScale scale) { return {.value = scale.value / 2}; }

}  // namespace ebb
