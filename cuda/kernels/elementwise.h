// Element-wise kernels: for each index i, op.value(i) computes a result and op.store(i, value)
// stores it.
#pragma once

#include "cuda/kernels/device_code.h"

namespace ebb::cuda {

inline constexpr int kElementThreads = 256;
inline constexpr int kElementsAThread = 4;

/// A thread reads all its elements before it stores the first one, so that the reads run
/// concurrently.
template <class Op>
__global__ void __launch_bounds__(kElementThreads) for_each_element(Op op, int64_t n) {
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kElementThreads * kElementsAThread) + threadIdx.x;
  float values[kElementsAThread];
#pragma unroll
  for (int j = 0; j < kElementsAThread; ++j) {
    const int64_t i = first + j * kElementThreads;
    values[j] = i < n ? op.value(i) : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < kElementsAThread; ++j) {
    const int64_t i = first + j * kElementThreads;
    if (i < n) op.store(i, values[j]);
  }
}

template <class Op>
void launch_for_each(const char* name, cudaStream_t stream, const Op& op, int64_t n) {
  launch(name, stream, blocks_for(n, kElementThreads * kElementsAThread), kElementThreads, 0,
         for_each_element<Op>, op, n);
}

}  // namespace ebb::cuda
