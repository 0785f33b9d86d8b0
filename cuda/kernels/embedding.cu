#include <limits>

#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {
namespace {

constexpr int kRowWarps = 4;
constexpr int kColumnsALane = 8;  // a warp sums 256 columns of one row of the table
constexpr int kIndicesALane = 4;  // read at once in the search for a row's indices

__global__ void find_bad_index(const int32_t* indices, int64_t n, int64_t limit, int64_t ignored,
                               DataError::Kind kind, DataError* error) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t index = indices[i];
  if ((index >= 0 && index < limit) || index == ignored) return;
  if (atomicCAS(&error->kind, DataError::None, kind) != DataError::None) return;
  error->row = i;
  error->value = index;
  error->limit = limit;
}

template <class T>
struct Tables {
  const T* wte;
  const T* wpe;  // null: no position embedding
  const int32_t* tokens;
  const int32_t* positions;
  int64_t num_tokens, num_positions;  // rows of the tables
};

/// Output rows whose index is not in the table become NaN.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    look_up(Tables<T> f, T* y, int64_t num_rows, int64_t num_columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  if (row >= num_rows) return;
  const int64_t token = f.tokens[row], position = f.wpe == nullptr ? 0 : f.positions[row];
  const bool is_there = token >= 0 && token < f.num_tokens &&
                        (f.wpe == nullptr || (position >= 0 && position < f.num_positions));
  for (int64_t i = lane_index(); i < num_columns; i += kWarp) {
    float v = std::numeric_limits<float>::quiet_NaN();
    if (is_there) {
      v = to_float(f.wte[token * num_columns + i]);
      if (f.wpe != nullptr) v += to_float(f.wpe[position * num_columns + i]);
    }
    y[row * num_columns + i] = T(v);
  }
}

/// Columns [first, ...) of the gradient of one row of the table. Each lane has every 32nd column.
template <class T>
struct RowSum {
  float sums[kColumnsALane];
  const T* dy;
  int64_t num_columns, first;

  __device__ void add(int64_t row) {
#pragma unroll
    for (int j = 0; j < kColumnsALane; ++j) {
      const int64_t column = first + j * kWarp;
      if (column < num_columns) sums[j] += to_float(dy[row * num_columns + column]);
    }
  }
};

/// A warp owns one row of the table. It reads all indices and adds the gradients of its row in
/// their order. So nothing is sorted or counted first, and each sum has one owner and a fixed
/// order.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    sum_rows(const int32_t* indices, int64_t num_indices, const T* dy, float* dtable,
             int64_t table_rows, int64_t num_columns, int64_t warps_a_row, Write write) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  const int64_t table_row = warp / warps_a_row;
  if (table_row >= table_rows) return;
  const int64_t first = warp % warps_a_row * (kColumnsALane * kWarp) + lane_index();
  RowSum<T> sum{{}, dy, num_columns, first};
  bool any = false;
  for (int64_t base = 0; base < num_indices; base += kIndicesALane * kWarp) {
    bool mine[kIndicesALane];
#pragma unroll
    for (int j = 0; j < kIndicesALane; ++j) {
      const int64_t i = base + j * kWarp + lane_index();
      mine[j] = i < num_indices && indices[i] == table_row;
    }
#pragma unroll
    for (int j = 0; j < kIndicesALane; ++j) {
      unsigned found = __ballot_sync(kAllLanes, mine[j]);
      any = any || found != 0;
      for (; found != 0; found &= found - 1) sum.add(base + j * kWarp + __ffs(found) - 1);
    }
  }
  if (!any && write == Write::Add) return;
#pragma unroll
  for (int j = 0; j < kColumnsALane; ++j) {
    const int64_t column = first + j * kWarp;
    if (column >= num_columns) continue;
    float& to = dtable[table_row * num_columns + column];
    to = write == Write::Add ? to + sum.sums[j] : sum.sums[j];
  }
}

}  // namespace

void check_indices(const GpuLaunch& gpu, const Tensor& indices, int64_t limit, int64_t ignored,
                   DataError::Kind kind) {
  const int64_t n = indices.num_elements();
  launch("check_indices", gpu.stream, blocks_for(n, kElementThreads), kElementThreads, 0,
         find_bad_index, indices.as<int32_t>(), n, limit, ignored, kind, gpu.data_error);
}
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void EmbeddingForward::run(const GpuLaunch& gpu) const {
  check_indices(gpu, tokens, wte.rows(), 0, DataError::Token);
  if (wpe) check_indices(gpu, positions, wpe.rows(), 0, DataError::Token);
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Tables<T> tables{wte.as<T>(),          wpe ? wpe.as<T>() : nullptr,
                           tokens.as<int32_t>(), wpe ? positions.as<int32_t>() : nullptr,
                           wte.rows(),           wpe ? wpe.rows() : 0};
    launch("embedding_forward", gpu.stream, blocks_for(y.rows(), kRowWarps), kRowWarps * kWarp, 0,
           look_up<T>, tables, y.as<T>(), y.rows(), y.columns());
  });
}

void EmbeddingBackward::run(const GpuLaunch& gpu) const {
  check_indices(gpu, indices, dtable.rows(), 0, DataError::Token);
  with_float_type(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t warps_a_row = ceil_div(dy.columns(), kColumnsALane * kWarp);
    launch("embedding_backward", gpu.stream, blocks_for(dtable.rows() * warps_a_row, kRowWarps),
           kRowWarps * kWarp, 0, sum_rows<T>, indices.as<int32_t>(), indices.num_elements(),
           dy.as<T>(), dtable.as<float>(), dtable.rows(), dtable.columns(), warps_a_row, write);
  });
}

}  // namespace ebb
