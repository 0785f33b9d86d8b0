#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/norm_rows.h"
#include "cuda/kernels/row_blocks.h"

namespace ebb::cuda {
namespace {

constexpr int kHeadWarps = 4;  // a warp computes one head of one row
constexpr int kColumnThreads = 128;

/// Rows of heads. Each head of queries or keys is normalised alone, with one of two weights; the
/// heads after them (values) do not change. For a norm of whole rows, the row is one head.
template <class T>
struct Heads {
  int64_t num_rows, num_columns, width, num_first, num_second;
  const T* x;
  const T* first_weight;
  const T* second_weight;
  float* rstd;  // (rows, heads)

  __host__ __device__ int64_t count() const { return num_first + num_second; }
  __device__ const T* weight_of(int64_t head) const {
    return head < num_first ? first_weight : second_weight;
  }
};

/// The head and the row that a warp computes.
struct Place {
  int64_t row, head;
  __device__ explicit Place(int64_t heads_a_row) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kHeadWarps + warp_index();
    row = i / heads_a_row;
    head = i % heads_a_row;
  }
};

template <class T>
__global__ void __launch_bounds__(kHeadWarps* kWarp)
    normalize_heads(Heads<T> f, T* y, float epsilon, int64_t num_copied) {
  const Place place(f.count() + num_copied);
  if (place.row >= f.num_rows) return;
  const int64_t first = place.row * f.num_columns + place.head * f.width;
  if (place.head >= f.count()) {
    for (int64_t i = lane_index(); i < f.width; i += kWarp) y[first + i] = f.x[first + i];
    return;
  }
  float squares = 0.0f;
  for (int64_t i = lane_index(); i < f.width; i += kWarp) {
    const float v = to_float(f.x[first + i]);
    squares = fmaf(v, v, squares);
  }
  const float mean = sum_of_warp(squares) / static_cast<float>(f.width);
  const float rstd = __fdiv_rn(1.0f, __fsqrt_rn(mean + epsilon));
  const T* w = f.weight_of(place.head);
  for (int64_t i = lane_index(); i < f.width; i += kWarp) {
    y[first + i] = T(to_float(f.x[first + i]) * rstd * to_float(w[i]));
  }
  if (lane_index() == 0) f.rstd[place.row * f.count() + place.head] = rstd;
}

/// dx = rstd (g - xhat mean(g xhat)) with g = dy w; dx may be dy.
template <class T>
__global__ void __launch_bounds__(kHeadWarps* kWarp)
    normalize_heads_backward(Heads<T> f, T* dx, const T* dy, Write write) {
  const Place place(f.count());
  if (place.row >= f.num_rows) return;
  const int64_t first = place.row * f.num_columns + place.head * f.width;
  const float rstd = f.rstd[place.row * f.count() + place.head];
  const T* w = f.weight_of(place.head);
  float sum = 0.0f;
  for (int64_t i = lane_index(); i < f.width; i += kWarp) {
    const float g = to_float(dy[first + i]) * to_float(w[i]);
    sum = fmaf(g, to_float(f.x[first + i]) * rstd, sum);
  }
  const float mean = sum_of_warp(sum) / static_cast<float>(f.width);
  for (int64_t i = lane_index(); i < f.width; i += kWarp) {
    const float g = to_float(dy[first + i]) * to_float(w[i]);
    const float d = rstd * (g - to_float(f.x[first + i]) * rstd * mean);
    T& to = dx[first + i];
    to = T(write == Write::Add ? to_float(to) + d : d);
  }
}

/// Sums of dy xhat over a block of rows, for one of the two weights. One thread sums one column.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_head_block(Heads<T> f, const T* dy, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  if (column >= f.width) return;
  const int64_t height = rows_a_block(f.num_rows), first_row = blockIdx.y * height;
  const int64_t last_row = first_row + height < f.num_rows ? first_row + height : f.num_rows;
  const int64_t begin = blockIdx.z == 0 ? 0 : f.num_first;
  const int64_t end = blockIdx.z == 0 ? f.num_first : f.count();
  float sum = 0.0f;
  for (int64_t row = first_row; row < last_row; ++row) {
    for (int64_t head = begin; head < end; ++head) {
      const int64_t i = row * f.num_columns + head * f.width + column;
      sum = fmaf(to_float(dy[i]), to_float(f.x[i]) * f.rstd[row * f.count() + head], sum);
    }
  }
  partials[(blockIdx.y * gridDim.z + blockIdx.z) * f.width + column] = sum;
}

/// A norm of whole rows (heads {1, 0}, no wk), or of each head of queries and keys.
struct RmsNorm {
  Tensor x = {}, wq = {}, wk = {}, rstd = {};
  HeadCounts heads = {1, 0};
};
struct RmsNormGradients {
  Tensor dx = {}, dy = {};
  Write dx_write = Write::Store;
  Tensor dwq = {}, dwk = {};
  Write parameter_write = Write::Store;
};

template <class T>
Heads<T> heads_of(const RmsNorm& f) {
  return {f.x.rows(),        f.x.columns(), f.wq.num_elements(), f.heads.queries,
          f.heads.keys,      f.x.as<T>(),   f.wq.as<T>(),        f.wk ? f.wk.as<T>() : nullptr,
          f.rstd.as<float>()};
}

int64_t num_weights(const RmsNorm& f) { return f.wk ? 2 : 1; }

/// Are these norms of whole rows, for the kernels in norm_rows.h?
bool has_whole_rows(const RmsNorm& f) { return !f.wk && is_in_registers(f.x); }

template <class T>
NormRows<T> rows_of(const RmsNorm& f) {
  return {f.x.rows(), f.x.columns(), f.x.as<T>(), f.wq.as<T>(), nullptr, f.rstd.as<float>()};
}

void launch_forward(cudaStream_t stream, const RmsNorm& f, const Tensor& y, float epsilon) {
  with_float_type(f.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (has_whole_rows(f)) {
      return launch_norm_rows<false>("rms_norm_forward", stream, rows_of<T>(f), y.as<T>(),
                                     static_cast<const T*>(nullptr), epsilon);
    }
    const Heads<T> heads = heads_of<T>(f);
    const int64_t copied = heads.num_columns / heads.width - heads.count();
    launch("rms_norm_forward", stream,
           blocks_for(heads.num_rows * (heads.count() + copied), kHeadWarps), kHeadWarps * kWarp, 0,
           normalize_heads<T>, heads, y.as<T>(), epsilon, copied);
  });
}

size_t workspace_bytes_of(const RmsNorm& f) {
  if (has_whole_rows(f)) return norm_partial_floats<false>(f.x) * sizeof(float);
  return static_cast<size_t>(num_row_blocks(f.x.rows()) * num_weights(f) * f.wq.num_elements()) *
         sizeof(float);
}

void launch_backward(const GpuLaunch& gpu, const RmsNorm& f, const RmsNormGradients& g) {
  const cudaStream_t stream = gpu.stream;
  auto* const partials = gpu.scratch<float>(workspace_bytes_of(f));
  with_float_type(f.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (has_whole_rows(f)) {
      return launch_norm_rows_backward<false>(
          "rms_norm_backward", stream, rows_of<T>(f), g.dx.as<T>(), g.dy.as<T>(), g.dx_write,
          {g.dwq.as<float>(), nullptr, g.parameter_write}, partials);
    }
    const Heads<T> heads = heads_of<T>(f);
    // The sums are computed first, because dx may have the memory of dy.
    dim3 grid = blocks_for(heads.width, kColumnThreads);
    grid.y = static_cast<unsigned>(num_row_blocks(heads.num_rows));
    grid.z = static_cast<unsigned>(num_weights(f));
    launch("rms_norm_backward", stream, grid, kColumnThreads, 0, sum_head_block<T>, heads,
           g.dy.as<T>(), partials);
    launch_block_sums("rms_norm_backward", stream,
                      {g.dwq.as<float>(), f.wk ? g.dwk.as<float>() : nullptr, heads.width, partials,
                       num_row_blocks(heads.num_rows), g.parameter_write});
    launch("rms_norm_backward", stream, blocks_for(heads.num_rows * heads.count(), kHeadWarps),
           kHeadWarps * kWarp, 0, normalize_heads_backward<T>, heads, g.dx.as<T>(), g.dy.as<T>(),
           g.dx_write);
  });
}

RmsNorm norm_of(const RmsNormBackward& f) { return {.x = f.x, .wq = f.w, .rstd = f.rstd}; }
RmsNorm norm_of(const HeadNormBackward& f) { return {f.x, f.wq, f.wk, f.rstd, f.heads}; }

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void RmsNormForward::run(const GpuLaunch& gpu) const {
  launch_forward(gpu.stream, {.x = x, .wq = w, .rstd = rstd}, y, epsilon);
}

size_t RmsNormBackward::workspace_bytes(const GpuLaunch&) const {
  return workspace_bytes_of(norm_of(*this));
}

void RmsNormBackward::run(const GpuLaunch& gpu) const {
  launch_backward(gpu, norm_of(*this), {dx, dy, dx_write, dw, {}, parameter_write});
}

void HeadNormForward::run(const GpuLaunch& gpu) const {
  launch_forward(gpu.stream, {x, wq, wk, rstd, heads}, y, epsilon);
}

size_t HeadNormBackward::workspace_bytes(const GpuLaunch&) const {
  return workspace_bytes_of(norm_of(*this));
}

void HeadNormBackward::run(const GpuLaunch& gpu) const {
  launch_backward(gpu, norm_of(*this),
                  {gradient, gradient, Write::Store, dwq, dwk, parameter_write});
}

}  // namespace ebb
