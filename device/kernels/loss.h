// The kernels of losses (device/kernels.h).
#pragma once

#include <optional>

#include "device/kernels/launch.h"

namespace ebb {

// Logits may have padding: fewer than kMostPadding columns after the last class, which kernels do
// not write, and on which no result depends. Only a GPU takes padding; on the host the kernel fails
// with LogicError.

/// losses (N) fp32 = -log softmax(logits)[target], 0 where target == -100. With `gradient_scale`,
/// logits are replaced by their gradient: (softmax - onehot) * scale, 0 in ignored rows. logits
/// (N, V), targets (N) int32.
struct CrossEntropy {
  Tensor losses, logits, targets;
  std::optional<float> gradient_scale;
  int64_t num_classes = 0;  ///< V; 0: the logits have no padding

  int64_t width() const { return num_classes > 0 ? num_classes : logits.columns(); }

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Cross entropy in slices of classes: one pass over all slices computes the losses, a second pass
/// the gradient. logits (N, S) are those of `slice`. statistics (N, 3) fp32 cover the slices so
/// far: the greatest logit of a row, the sum of e^(logit - greatest), and the logit of the row's
/// target; those of rows with the target -100 are undefined. The slices come in order: the kernel
/// for the first slice initialises the statistics, the kernel for the last slice writes losses (N)
/// fp32. Each kernel takes all arguments.
struct CrossEntropyStatistics {
  Tensor losses, statistics, logits, targets;
  ClassSlice slice;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Replaces logits (N, S) by their gradient. `statistics` cover all slices. Slices may come in any
/// order.
struct CrossEntropyGradient {
  Tensor logits, statistics, targets;
  ClassSlice slice;
  float gradient_scale;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// losses (N) fp32 = the mean of (x - target)^2 over a row. x and targets (N, C) have float types,
/// which may differ. With dx (N, C) of x's type: dx = or += 2 (x - target) / C * gradient_scale.
struct MeanSquaredError {
  Tensor losses, dx, x, targets;
  Write write;
  float gradient_scale;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// total (1) fp64 = or += the sum of values (N) fp32, in a fixed tree.
struct Sum {
  Tensor total, values;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
