// Element-wise kernels. launch_for_each(): for each index i, op.value(i) computes a result and
// op.store(i, value) stores it. launch_map(): to[i] = op(from[i]...), with wide accesses.
#pragma once

#include "cuda/kernels/device_code.h"
#include "cuda/kernels/wide.h"

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

inline constexpr int kMapped = 8;  // neighbouring elements, which a thread computes

template <bool kIsWide, class Op, class T, class... Groups>
__device__ __forceinline__ void map_group(const Op& op, T* to, int64_t first, int64_t n,
                                          const Groups&... from) {
  float values[kMapped];
#pragma unroll
  for (int i = 0; i < kMapped; ++i) values[i] = op(to_float(from.of[i])...);
  store_group<kIsWide>(to, first, n, rounded<T>(values));
}

/// A thread reads its elements of all operands before it stores the first one, so `to` may be an
/// operand.
template <class Op, class T, class... From>
__global__ void __launch_bounds__(kElementThreads)
    map_elements(Op op, bool is_wide, int64_t n, T* to, const From*... from) {
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x) * kMapped;
  if (is_wide && first + kMapped <= n) {
    map_group<true>(op, to, first, n, load_group<true, kMapped>(from, first, n)...);
  } else if (first < n) {
    map_group<false>(op, to, first, n, load_group<false, kMapped>(from, first, n)...);
  }
}

/// op: a function of floats.
template <class Op, class T, class... From>
void launch_map(const char* name, cudaStream_t stream, const Op& op, int64_t n, T* to,
                const From*... from) {
  const bool is_wide = is_aligned(to, 16) && (is_aligned(from, 16) && ...);
  launch(name, stream, blocks_for(n, kElementThreads * kMapped), kElementThreads, 0,
         map_elements<Op, T, From...>, op, is_wide, n, to, from...);
}

}  // namespace ebb::cuda
