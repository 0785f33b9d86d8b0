// The kernels of the softmax of rows (device/kernels.h).
#pragma once

#include "device/kernels/launch.h"

namespace ebb {

/// y (N, C) = e^x / the sum of e^x over the row; y and x have one float type. A row that contains
/// NaN or +infinity, or nothing but -infinity, becomes NaN; -infinity beside finite values gives 0.
struct SoftmaxForward {
  Tensor y, x;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx (N, C) = or += y (dy - the sum of dy y over the row). y is the result of the forward.
struct SoftmaxBackward {
  Tensor dx, dy, y;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
