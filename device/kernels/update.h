// The kernels of the optimizer (device/kernels.h): finished gradients, their norm, and updates.
#pragma once

#include "device/kernels/launch.h"
#include "device/planes.h"

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
  Planes planes = {};
  int64_t n = 0;
  const AdamWCoefficients* coefficients = nullptr;  ///< in pinned memory, read by the kernel

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
