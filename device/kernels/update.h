// The kernels of the optimizer (device/kernels.h): finished gradients, their norm, and updates.
#pragma once

#include "device/kernels/launch.h"

namespace ebb {

/// One range of a finished gradient: gradient (n) fp32, bf16 or fp16 = sums (n) + more_sums (n),
/// fp32, rounded to the type once. With `partials`, the same pass also computes the
/// SquaredNormPieces of the result. more_sums and partials may be empty.
struct RoundGradient {
  Tensor gradient, sums, more_sums = {}, partials = {};

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// partials (P) fp64: partial p = sum of squares of gradient elements [p * kPieceElements, ...),
/// each computed as 64 sums, which are added in a fixed tree. gradient fp32, bf16 or fp16.
struct SquaredNormPieces {
  Tensor partials, gradient;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// An AdamW update of n elements of each plane, all on the device. The results have the same bits
/// as those of cpu_adam/.
struct AdamWUpdate {
  Tensor weight = {};       ///< fp32, bf16 or fp16
  int16_t* low = nullptr;   ///< for bf16 weights: the low half
  float* master = nullptr;  ///< for fp16 weights: the fp32 masters; weights are rounded masters
  Tensor momentum = {}, variance = {};              ///< fp32
  Tensor gradient = {};                             ///< fp32, bf16 or fp16
  const AdamWCoefficients* coefficients = nullptr;  ///< in pinned memory, read by the kernel

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
