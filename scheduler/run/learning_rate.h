// The learning rate of a step: a linear warm-up to `peak`, then the constant `peak`, or a linear or
// cosine decay to `minimum`. Steps count from 0.
//
//   step s < warmup   peak * (s + 1) / warmup
//   constant          peak
//   linear            peak + (minimum - peak) * p, where p = (s - warmup) / (steps - warmup)
//   cosine            minimum + (peak - minimum) * (1 + cos(pi p)) / 2
//
// A plain value; thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace ebb {

enum class ScheduleShape : uint8_t { Constant, Linear, Cosine };

struct LearningRate {
  double peak = 3e-4;
  double minimum = 3e-5;
  uint64_t warmup_steps = 0;
  uint64_t num_steps = 100;
  ScheduleShape shape = ScheduleShape::Cosine;

  double at(uint64_t step) const {
    if (step < warmup_steps) {
      return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    if (shape == ScheduleShape::Constant) return peak;
    const double progress =
        static_cast<double>(step - warmup_steps) / static_cast<double>(num_steps - warmup_steps);
    if (shape == ScheduleShape::Linear) return peak + (minimum - peak) * progress;
    return minimum + (peak - minimum) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
};

}  // namespace ebb
