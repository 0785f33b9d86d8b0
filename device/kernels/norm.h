// The kernels of normalisation (device/kernels.h): layer norm, RMS norm, and the RMS norm of heads.
#pragma once

#include "device/kernels/launch.h"

namespace ebb {

/// y (N, C) = (x - mean) * rstd * w + b; mean, rstd (N) fp32.
struct LayerNormForward {
  Tensor y, mean, rstd, x, w, b;
  float epsilon;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx (N, C) = or += the gradient of x, by `dx_write`; dw and db (C) fp32 = or += the gradients of
/// w and b, by `parameter_write`. mean and rstd are those of the forward. dx may have the memory of
/// dy.
struct LayerNormBackward {
  Tensor dx;
  Write dx_write;
  Tensor dw, db;
  Write parameter_write;
  Tensor dy, x, w, mean, rstd;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// y (N, C) = x * rstd * w; rstd (N) fp32 = 1 / sqrt(mean of x^2 + epsilon).
struct RmsNormForward {
  Tensor y, rstd, x, w;
  float epsilon;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx (N, C) = or += the gradient of x, by `dx_write`; dw (C) fp32 = or += the gradient of w, by
/// `parameter_write`. rstd is that of the forward. dx may have the memory of dy.
struct RmsNormBackward {
  Tensor dx;
  Write dx_write;
  Tensor dw;
  Write parameter_write;
  Tensor dy, x, w, rstd;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// RMS norm of each head of queries and keys in x (N, (NH + 2 NKV) D), separately. Values are
/// copied. wq, wk (D); rstd (N, NH + NKV) fp32.
struct HeadNormForward {
  Tensor y, rstd, x, wq, wk;
  HeadCounts heads;
  float epsilon;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// In place: `gradient` holds dy and becomes dx. dwq, dwk (D) fp32 = or += the gradients of wq and
/// wk, by `parameter_write`.
struct HeadNormBackward {
  Tensor gradient, dwq, dwk;
  Write parameter_write;
  Tensor x, wq, wk, rstd;
  HeadCounts heads;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
