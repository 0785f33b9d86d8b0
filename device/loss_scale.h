// Dynamic loss scaling for fp16, as in apex and PyTorch's GradScaler. The gradient of the loss is
// multiplied by a power of two, so that small gradients do not underflow in fp16; the later
// division by a power of two is exact. If a gradient overflows, the step is skipped and the scale
// is halved. After many steps without an overflow the scale is doubled. A plain value; pure
// functions.
#pragma once

#include <cstdint>

#include "device/dtype.h"

namespace ebb {

struct LossScale {
  uint32_t value = 1;
  /// Good steps since the last overflow, modulo kGoodStepsToDouble. The largest scale is not
  /// doubled.
  uint32_t num_good_steps = 0;
  bool operator==(const LossScale&) const = default;
};

inline constexpr uint32_t kInitialLossScale = 1u << 16;
inline constexpr uint32_t kLargestLossScale = 1u << 24;  // apex has the same limit
inline constexpr uint32_t kGoodStepsToDouble = 2000;

/// The scale of the first step. Only fp16 needs a scale: fp32 and bf16 have a larger exponent.
constexpr LossScale initial_loss_scale(DType weight_type, uint32_t of_fp16 = kInitialLossScale) {
  return {.value = weight_type == DType::F16 ? of_fp16 : 1};
}

constexpr LossScale after_good_step(LossScale scale) {
  if (++scale.num_good_steps < kGoodStepsToDouble) return scale;
  return {.value = scale.value < kLargestLossScale ? 2 * scale.value : scale.value};
}

/// REQUIRES: value > 1. A smaller scale means that even unscaled gradients are too large for fp16.
constexpr LossScale after_overflow(LossScale scale) { return {.value = scale.value / 2}; }

}  // namespace ebb
