// Kernels in which one block computes one row: each thread computes every n-th group of
// neighbouring columns. The shape of the row alone says which thread adds what, and in which order.
#pragma once

#include <type_traits>

#include "cuda/kernels/device_code.h"
#include "cuda/kernels/wide.h"
#include "device/tensor.h"

namespace ebb::cuda {

/// Rows of a few columns have blocks of one warp.
inline constexpr int64_t kColumnsOfAWarp = 1024;
inline constexpr int kWarpsOfARow = 16;

struct RowGroups {
  int64_t columns;
  bool in_groups;   // the row is a whole number of groups
  bool is_aligned;  // a group is one access to memory, in each array

  __device__ int64_t first_element() const { return blockIdx.x * columns; }
};

/// The groups of rows like those of x. `arrays`: all that the kernel accesses by groups.
template <class... Arrays>
RowGroups row_groups(const Tensor& x, const Arrays&... arrays) {
  return {.columns = x.columns(),
          .in_groups = static_cast<size_t>(x.columns()) * size_of(x.dtype) % 16 == 0,
          .is_aligned = is_aligned(x.data, 16) && (is_aligned(arrays.data, 16) && ...)};
}

/// Calls f(i, count) for the groups of this thread: columns [i, i + count), where count is a
/// std::integral_constant.
template <class T, class F>
__device__ __forceinline__ void for_each_group(const RowGroups& row, const F& f) {
  const int64_t end = row.in_groups ? row.columns : 0;
  for (int64_t i = threadIdx.x * kWide<T>; i < end; i += blockDim.x * kWide<T>) {
    f(i, std::integral_constant<int, kWide<T>>{});
  }
  for (int64_t i = end + threadIdx.x; i < row.columns; i += blockDim.x) {
    f(i, std::integral_constant<int, 1>{});
  }
}

/// Columns [i, i + kCount) of the row at x.
template <int kCount, class T>
__device__ __forceinline__ Group<T, kCount> load_columns(const RowGroups& row, const T* x,
                                                         int64_t i) {
  return kCount > 1 && row.is_aligned ? load_group<true, kCount>(x, i, row.columns)
                                      : load_group<false, kCount>(x, i, row.columns);
}

/// Columns [i, i + kCount) of the row at `to` = or += value(0), value(1), ... Rounds each result
/// once.
template <int kCount, class T, class Value>
__device__ __forceinline__ void write_columns(const RowGroups& row, T* to, int64_t i, Write write,
                                              const Value& value) {
  Group<T, kCount> group = {};
  if (write == Write::Add) group = load_columns<kCount>(row, to, i);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float term = value(j);
    group.of[j] = T(write == Write::Add ? to_float(group.of[j]) + term : term);
  }
  if (kCount > 1 && row.is_aligned) {
    store_group<true>(to, i, row.columns, group);
  } else {
    store_group<false>(to, i, row.columns, group);
  }
}

/// Calls f(zero, warps) with a zero of the element type of the rows of x, and the number of warps
/// of a block as a std::integral_constant.
template <class F>
void with_row_type(const Tensor& x, const F& f) {
  with_float_type(x.dtype, [&](auto zero) {
    if (x.columns() <= kColumnsOfAWarp) return f(zero, std::integral_constant<int, 1>{});
    f(zero, std::integral_constant<int, kWarpsOfARow>{});
  });
}

/// Launches a block for each row, with shared memory for one float of each warp.
template <int kWarps, class... P, class... A>
void launch_rows(const char* name, cudaStream_t stream, int64_t num_rows, void (*kernel)(P...),
                 const A&... arguments) {
  launch(name, stream, blocks_for(num_rows, 1), kWarps * kWarp, kWarps * sizeof(float), kernel,
         arguments...);
}

}  // namespace ebb::cuda
