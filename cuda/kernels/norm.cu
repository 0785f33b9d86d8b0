#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/norm_rows.h"
#include "cuda/kernels/row_blocks.h"

namespace ebb::cuda {
namespace {

// The kernels of rows that are too wide for norm_rows.h: a warp computes one row.
constexpr int kRowWarps = 4;
constexpr int kColumnThreads = 128;

template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    normalize(NormRows<T> f, T* y, const T* b, float epsilon) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  if (row >= f.num_rows) return;
  const int64_t n = f.num_columns;
  const T* x = f.x + row * n;
  float sum = 0.0f;
  for (int64_t i = lane_index(); i < n; i += kWarp) sum += to_float(x[i]);
  const float mean = sum_of_warp(sum) / static_cast<float>(n);
  float squares = 0.0f;
  for (int64_t i = lane_index(); i < n; i += kWarp) {
    const float d = to_float(x[i]) - mean;
    squares = fmaf(d, d, squares);
  }
  const float variance = sum_of_warp(squares) / static_cast<float>(n);
  const float rstd = __fdiv_rn(1.0f, __fsqrt_rn(variance + epsilon));
  for (int64_t i = lane_index(); i < n; i += kWarp) {
    const float normal = (to_float(x[i]) - mean) * rstd;
    y[row * n + i] = T(fmaf(normal, to_float(f.w[i]), to_float(b[i])));
  }
  if (lane_index() == 0) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    normalize_backward(NormRows<T> f, T* dx, const T* dy, Write write) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  if (row >= f.num_rows) return;
  const int64_t n = f.num_columns;
  const T* x = f.x + row * n;
  const float mean = f.mean[row], rstd = f.rstd[row];
  float g_sum = 0.0f, gx_sum = 0.0f;
  for (int64_t i = lane_index(); i < n; i += kWarp) {
    const float g = to_float(dy[row * n + i]) * to_float(f.w[i]);
    g_sum += g;
    gx_sum = fmaf(g, (to_float(x[i]) - mean) * rstd, gx_sum);
  }
  const float g_mean = sum_of_warp(g_sum) / static_cast<float>(n);
  const float gx_mean = sum_of_warp(gx_sum) / static_cast<float>(n);
  for (int64_t i = lane_index(); i < n; i += kWarp) {
    const float g = to_float(dy[row * n + i]) * to_float(f.w[i]);
    const float normal = (to_float(x[i]) - mean) * rstd;
    const float d = rstd * (g - g_mean - normal * gx_mean);
    T& to = dx[row * n + i];
    to = T(write == Write::Add ? to_float(to) + d : d);
  }
}

/// Sums of dy xhat and of dy over a block of rows. One thread sums one column.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_row_block(NormRows<T> f, const T* dy, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  const int64_t n = f.num_columns, height = rows_a_block(f.num_rows);
  if (column >= n) return;
  const int64_t first = blockIdx.y * height;
  const int64_t last = first + height < f.num_rows ? first + height : f.num_rows;
  float sum = 0.0f, normal_sum = 0.0f;
  for (int64_t row = first; row < last; ++row) {
    const float d = to_float(dy[row * n + column]);
    sum += d;
    normal_sum = fmaf(d, (to_float(f.x[row * n + column]) - f.mean[row]) * f.rstd[row], normal_sum);
  }
  partials[2 * blockIdx.y * n + column] = normal_sum;
  partials[(2 * blockIdx.y + 1) * n + column] = sum;
}

template <class T>
void launch_row_blocks(cudaStream_t stream, const NormRows<T>& rows, const T* dy, float* partials) {
  dim3 grid = blocks_for(rows.num_columns, kColumnThreads);
  grid.y = static_cast<unsigned>(num_row_blocks(rows.num_rows));
  launch("sum_row_block", stream, grid, kColumnThreads, 0, sum_row_block<T>, rows, dy, partials);
}

constexpr int kColumnWarps = 8;  // of a block that sums columns

/// Sums the first num_sums columns over a block of rows. A lane has neighbouring columns, of which
/// each warp sums every eighth row. Then the sums of the warps are added in order.
template <bool kIsWide, class T>
__global__ void __launch_bounds__(kColumnWarps* kWarp, 4)
    sum_columns(const T* x, int64_t num_rows, int64_t num_columns, int64_t num_sums,
                float* partials) {
  constexpr int kCount = kWide<T>;
  static_assert(kCount <= kColumnWarps);
  float* const sums = shared_memory<float>();  // (warps, columns of a lane, lanes)
  const int64_t n = num_columns, height = rows_a_block(num_rows);
  const int64_t first = blockIdx.y * height;
  const int64_t last = first + height < num_rows ? first + height : num_rows;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane_index()) * kCount;
  float sum[kCount] = {};
#pragma unroll 4
  for (int64_t row = first + warp_index(); row < last; row += kColumnWarps) {
    const Group<T, kCount> group = load_group<kIsWide, kCount>(x + row * n, column, n);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] += to_float(group.of[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    sums[(warp_index() * kCount + i) * kWarp + lane_index()] = sum[i];
  }
  __syncthreads();
  const int mine = warp_index();  // of the lane's columns
  if (mine >= kCount || column + mine >= num_sums) return;
  float total = 0.0f;
  for (int warp = 0; warp < kColumnWarps; ++warp) {
    total += sums[(warp * kCount + mine) * kWarp + lane_index()];
  }
  partials[blockIdx.y * num_sums + column + mine] = total;
}

}  // namespace

size_t column_sums_floats(const Tensor& x) {
  return static_cast<size_t>(num_row_blocks(x.rows()) * x.columns());
}

void column_sums(cudaStream_t stream, const Tensor& sums, const Tensor& x, Write write,
                 float* partials) {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const from = x.as<T>();
    const int64_t n = sums.num_elements();
    dim3 grid = blocks_for(n, kWarp * kWide<T>);
    grid.y = static_cast<unsigned>(num_row_blocks(x.rows()));
    const bool is_wide = x.columns() % kWide<T> == 0 && is_aligned(from, 16);
    launch("column_sums", stream, grid, kColumnWarps * kWarp,
           kColumnWarps * kWide<T> * kWarp * sizeof(float),
           is_wide ? sum_columns<true, T> : sum_columns<false, T>, from, x.rows(), x.columns(), n,
           partials);
    launch_block_sums("column_sums", stream,
                      {sums.as<float>(), nullptr, n, partials, num_row_blocks(x.rows()), write});
  });
}

}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void LayerNormForward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const NormRows<T> rows{x.rows(),  x.columns(),      x.as<T>(),
                           w.as<T>(), mean.as<float>(), rstd.as<float>()};
    if (is_in_registers(x)) {
      return launch_norm_rows<true>("layer_norm_forward", gpu.stream, rows, y.as<T>(), b.as<T>(),
                                    epsilon);
    }
    launch("layer_norm_forward", gpu.stream, blocks_for(rows.num_rows, kRowWarps),
           kRowWarps * kWarp, 0, normalize<T>, rows, y.as<T>(), b.as<T>(), epsilon);
  });
}

size_t LayerNormBackward::workspace_bytes(const GpuLaunch&) const {
  return sizeof(float) *
         (is_in_registers(x) ? norm_partial_floats<true>(x) : 2 * column_sums_floats(x));
}

void LayerNormBackward::run(const GpuLaunch& gpu) const {
  auto* const partials = gpu.scratch<float>(workspace_bytes(gpu));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const NormRows<T> rows{x.rows(),  x.columns(),      x.as<T>(),
                           w.as<T>(), mean.as<float>(), rstd.as<float>()};
    if (is_in_registers(x)) {
      return launch_norm_rows_backward<true>(
          "layer_norm_backward", gpu.stream, rows, dx.as<T>(), dy.as<T>(), dx_write,
          {dw.as<float>(), db.as<float>(), parameter_write}, partials);
    }
    // The sums are computed first, because dx may have the memory of dy.
    launch_row_blocks(gpu.stream, rows, dy.as<T>(), partials);
    launch_block_sums("layer_norm_backward", gpu.stream,
                      {dw.as<float>(), db.as<float>(), rows.num_columns, partials,
                       num_row_blocks(rows.num_rows), parameter_write});
    launch("layer_norm_backward", gpu.stream, blocks_for(rows.num_rows, kRowWarps),
           kRowWarps * kWarp, 0, normalize_backward<T>, rows, dx.as<T>(), dy.as<T>(), dx_write);
  });
}

}  // namespace ebb
