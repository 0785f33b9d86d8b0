// The kernels of linear layers (device/kernels.h). OC: output channels.
//
// For some shapes a GPU rounds the product to the 16-bit type of the result before it adds the bias
// or the old value, and rounds the sum again. Where its library cannot add the residual, a second
// kernel does, after a further rounding.
#pragma once

#include <utility>

#include "device/kernels/elementwise.h"
#include "device/kernels/launch.h"

namespace ebb {

// Where a kernel says so, a tensor (N, OC) may have padding: fewer than kMostPadding columns after
// the first OC, which the kernel does not write, and on which no result depends. Only a GPU takes
// padding; the host throws LogicError.

/// y (N, OC) = x (N, C) w^T + bias + residual; w (OC, C); bias (OC) or empty; residual (N, OC) or
/// empty. y may have padding if there is no residual. REQUIRES, not checked: y overlaps no operand.
struct LinearForward {
  Tensor y, x, w, bias = {}, residual = {};

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx (N, C) = or += dy (N, OC) w (OC, C). dx has the type of dy and w, or is fp32. dy may have
/// padding.
struct LinearBackwardInput {
  Tensor dx, dy, w;
  Write write;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dbefore (N, C) = (dy (N, OC) w) * activation'(before): the backward of a linear layer whose
/// input is activation(before). All tensors have one type. dy w may be rounded before the product.
struct ActivationLinearBackward {
  Tensor dbefore, dy, w, before;
  Activation activation;

  Cost check() const;
  /// The same as two kernels, for a device that has no kernel for both. The host never has one.
  std::pair<LinearBackwardInput, ActivationBackward> split() const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const GpuLaunch& gpu) const;
};

/// dw (OC, C) fp32 = or += dy^T x; dbias (OC) fp32 = or += the column sums of dy (N, OC), or empty.
/// dy may have padding.
struct LinearBackwardWeight {
  Tensor dw, dbias, dy, x;
  Write write;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
