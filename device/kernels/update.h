// The kernels of the optimizer (device/kernels.h): finished gradients, their norm, and updates.
#pragma once

#include "device/kernels/launch.h"
#include "device/planes.h"

namespace ebb {

/// One range of a finished gradient: gradient (n) fp32, bf16 or fp16 = sums (n) + more_sums (n),
/// both fp32, rounded to the type of `gradient` once. With `partials`, the same pass also computes
/// the SquaredNormPieces of the result. more_sums and partials may be empty.
struct RoundGradient {
  Tensor gradient, sums, more_sums = {}, partials = {};

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// The partial norms of gradient (n) fp32, bf16 or fp16: partials (P) fp64, with P = n /
/// kPieceElements, rounded up. Partial p is the sum of the squares of the elements of piece p,
/// counted from the first element of `gradient`. It is computed as 64 sums, which are added in a
/// fixed tree.
struct SquaredNormPieces {
  Tensor partials, gradient;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// An AdamW update of n elements of each plane. The planes and the gradient are on the device. The
/// results have the same bits as those of cpu_adam/.
struct AdamWUpdate {
  Planes planes = {};
  int64_t n = 0;
  const AdamWCoefficients* coefficients = nullptr;  ///< in pinned memory, read by the kernel

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
