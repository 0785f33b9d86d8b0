// The kernels that look up rows of tables (device/kernels.h).
#pragma once

#include "device/kernels/launch.h"

namespace ebb {

/// y (N, C) = wte[tokens[i]] + wpe[positions[i]]; tokens, positions (N) int32; wpe, positions may
/// be empty.
struct EmbeddingForward {
  Tensor y, tokens, positions, wte, wpe;

  Cost check() const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

/// dtable (V, C) fp32: row v is the sum of the rows of dy whose index is v, in row order. A GPU
/// sums parts of 32 of these rows, and then adds the parts in order. Rows without an index become 0
/// (Store) or stay unchanged (Add).
struct EmbeddingBackward {
  Tensor dtable, dy, indices;
  Write write;

  Cost check() const;
  size_t workspace_bytes(const HostLaunch& host) const;
  size_t workspace_bytes(const GpuLaunch& gpu) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;
};

}  // namespace ebb
