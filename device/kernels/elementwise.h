// The kernels that compute each element from few others (device/kernels.h): activations, sums and
// products of tensors, copies of columns, dropout, and rotary embeddings.
#pragma once

#include <span>

#include "device/kernels/launch.h"

namespace ebb {

/// y = activation(x); y and x have one float type and one number of elements.
struct ActivationForward {
  Tensor y, x;
  Activation activation;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx = or += dy * activation'(x); all tensors have one float type and one number of elements.
struct ActivationBackward {
  Tensor dx, dy, x;
  Activation activation;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// y (N, F) = silu(gate) * up of x (N, 2F): gate, then up (Shazeer 2020).
struct SwigluForward {
  Tensor y, x;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dx (N, 2F) = or += the gradient of x (N, 2F), from dy (N, F).
struct SwigluBackward {
  Tensor dx, dy, x;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// y = a + b; all tensors have one float type and one number of elements.
struct Add {
  Tensor y, a, b;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// y = or += a * b; all tensors have one float type and one number of elements.
struct Multiply {
  Tensor y, a, b;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Columns [to_first, to_first + num_columns) of `to` = or += the columns from from_first on of
/// `from`; both have N rows and one float type. REQUIRES, not checked: different memory.
struct CopyColumns {
  Tensor to, from;
  int64_t to_first, from_first, num_columns;
  Write write;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Write::Add: y += x. Write::Store: y = x, converted to the type of y. y and x have float types,
/// which may differ, and one number of elements.
struct Accumulate {
  Tensor y, x;
  Write write = Write::Add;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// Sets all bytes of y to 0.
struct FillZero {
  Tensor y;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// In place: each element of x (B, ...) is kept and scaled, or becomes 0. The backward is the same
/// operation on the gradient.
struct ApplyDropout {
  Tensor x;
  Dropout dropout;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// table (N, D) fp32: factor * cos(position * frequency) for D / 2 frequencies, then factor * sin,
/// from angles in fp64. positions (N) int32. The frequencies are in host memory, which must stay
/// valid until the kernel has run.
struct RotaryTable {
  Tensor table, positions;
  std::span<const double> frequencies;
  double factor;

  Cost check() const;
  /// 0. Throws LogicError for a D that the GPU's kernel does not compute.
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// In place: the first num_heads heads of D columns in x (N, C) are turned by table (N, D).
/// Elements i and i + D / 2 of a head are a pair (Hugging Face's order; Su et al. 2021).
struct ApplyRotary {
  Tensor x, table;
  int64_t num_heads;
  RotaryDirection direction;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
