// The kernels of the optimizer (device/kernels.h): finished gradients, their norm, and updates.
#pragma once

#include <span>

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

/// The AdamW update of all elements in the ranges. The planes and the gradient are on the device.
/// All other elements keep their values. The results have the same bits as those of cpu_adam/.
/// REQUIRES, not checked: the ranges lie in the planes and do not overlap; there are at most
/// kMaxFactors coefficients (scheduler/search/memory_sizes.h); the arrays of ranges and of
/// coefficients exist until the update has run.
struct AdamWUpdate {
  Planes planes = {};
  std::span<const UpdateRange> ranges = {};
  std::span<const AdamWCoefficients> coefficients = {};  ///< pinned; read when the update runs
  /// Device memory for a copy of them. Null: the copy is in the workspace. Only a GPU needs one.
  AdamWCoefficients* fetched = nullptr;

  Cost check() const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
