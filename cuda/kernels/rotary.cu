#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {
namespace {

/// Passed by value, because the caller's array may be in host memory that the device cannot read.
struct Frequencies {
  double of[kLargestHead / 2];
};

__global__ void __launch_bounds__(kElementThreads)
    fill_table(float* table, const int32_t* positions, Frequencies frequencies, int half, int64_t n,
               double factor) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= n * half) return;
  const int64_t row = i / half;
  const int column = static_cast<int>(i % half);
  const double angle = positions[row] * frequencies.of[column];
  float* cosines = table + row * 2 * half;
  cosines[column] = static_cast<float>(factor * cos(angle));
  cosines[half + column] = static_cast<float>(factor * sin(angle));
}

/// A thread rotates one pair of channels; a block has pairs of one row.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    turn(T* x, int64_t num_columns, const float* table, int num_pairs, int half, int blocks_a_row,
         float sine_sign) {
  const int64_t row = blockIdx.x / static_cast<unsigned>(blocks_a_row);
  const int block = static_cast<int>(blockIdx.x % static_cast<unsigned>(blocks_a_row));
  const int pair = block * kElementThreads + static_cast<int>(threadIdx.x);
  if (pair >= num_pairs) return;
  const int column = pair % half;
  const float c = table[row * 2 * half + column];
  const float s = table[row * 2 * half + half + column] * sine_sign;
  T* first = x + row * num_columns + pair / half * 2 * half + column;
  const float a = to_float(first[0]), b = to_float(first[half]);
  first[0] = T(a * c - b * s);
  first[half] = T(b * c + a * s);
}

/// e^-x, clamped to be finite. silu(x) = x / (1 + e^-x).
__device__ __forceinline__ float negative_exponential(float x) {
  return expf(fminf(-x, kLargestExponent));
}

/// The columns [column, column + kMapped) of one row of y, of which there are `width`: those that a
/// thread computes.
struct GatePlace {
  int64_t row, column;
  __device__ GatePlace(int64_t num_rows, int64_t width) {
    const int64_t groups = ceil_div(width, kMapped);
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
    // A division of 32-bit numbers is several times faster.
    row = num_rows * groups >> 31 == 0 ? static_cast<uint32_t>(i) / static_cast<uint32_t>(groups)
                                       : i / groups;
    column = (i - row * groups) * kMapped;
  }
};

template <bool kIsWide, class T>
__global__ void __launch_bounds__(kElementThreads)
    gate(T* y, const T* x, int64_t num_rows, int64_t width) {
  const GatePlace at(num_rows, width);
  if (at.row >= num_rows) return;
  const T* row = x + at.row * 2 * width;
  const auto gates = load_group<kIsWide, kMapped>(row, at.column, width);
  const auto ups = load_group<kIsWide, kMapped>(row + width, at.column, width);
  float values[kMapped];
#pragma unroll
  for (int i = 0; i < kMapped; ++i) {
    const float g = to_float(gates.of[i]);
    values[i] = __fdividef(g, 1.0f + negative_exponential(g)) * to_float(ups.of[i]);
  }
  store_group<kIsWide>(y + at.row * width, at.column, width, rounded<T>(values));
}

/// For large |x| the slope of the gate is 0 or 1. The products that compute the slope stay finite,
/// because s falls faster than the exponential and the gate grow.
template <bool kIsWide, class T>
__global__ void __launch_bounds__(kElementThreads)
    gate_backward(T* dx, const T* dy, const T* x, int64_t num_rows, int64_t width, Write write) {
  const GatePlace at(num_rows, width);
  if (at.row >= num_rows) return;
  const int64_t row = at.row * 2 * width;
  const auto load = [&](const T* from) {
    return load_group<kIsWide, kMapped>(from, at.column, width);
  };
  const auto gates = load(x + row), ups = load(x + row + width), ds = load(dy + at.row * width);
  float dgates[kMapped] = {}, dups[kMapped] = {};
  if (write == Write::Add) {
    const auto dgates_before = load(dx + row), dups_before = load(dx + row + width);
#pragma unroll
    for (int i = 0; i < kMapped; ++i) {
      dgates[i] = to_float(dgates_before.of[i]);
      dups[i] = to_float(dups_before.of[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kMapped; ++i) {
    const float g = to_float(gates.of[i]), d = to_float(ds.of[i]);
    const float exponential = negative_exponential(g);
    const float s = __fdividef(1.0f, 1.0f + exponential), silu = g * s;
    const float slope = fmaf(silu, exponential * s, s);
    dgates[i] += d * to_float(ups.of[i]) * slope;
    dups[i] += d * silu;
  }
  store_group<kIsWide>(dx + row, at.column, width, rounded<T>(dgates));
  store_group<kIsWide>(dx + row + width, at.column, width, rounded<T>(dups));
}

/// Can the rows of these arrays be accessed as groups?
template <class... Arrays>
bool gates_are_wide(int64_t width, const Arrays*... arrays) {
  return width % kMapped == 0 && (is_aligned(arrays, 16) && ...);
}

dim3 gate_blocks(int64_t num_rows, int64_t width) {
  return blocks_for(num_rows * ceil_div(width, kMapped), kElementThreads);
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

size_t RotaryTable::workspace_bytes(const GpuLaunch&) const {
  check_head_size("rotary_table", table.columns());
  return 0;
}

void RotaryTable::run(const GpuLaunch& gpu) const {
  Frequencies copied = {};
  for (size_t i = 0; i < frequencies.size(); ++i) copied.of[i] = frequencies[i];
  const auto half = static_cast<int>(frequencies.size());
  launch("rotary_table", gpu.stream, blocks_for(table.rows() * half, kElementThreads),
         kElementThreads, 0, fill_table, table.as<float>(), positions.as<int32_t>(), copied, half,
         table.rows(), factor);
}

void ApplyRotary::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto half = static_cast<int>(table.columns() / 2);
    const auto pairs = static_cast<int>(num_heads * half);
    const auto blocks = static_cast<int>(ceil_div(pairs, kElementThreads));
    launch("rotary", gpu.stream, blocks_for(x.rows() * blocks, 1), kElementThreads, 0, turn<T>,
           x.as<T>(), x.columns(), table.as<float>(), pairs, half, blocks,
           direction == RotaryDirection::Forward ? 1.0f : -1.0f);
  });
}

void SwigluForward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t num_rows = y.rows(), width = y.columns();
    const bool is_wide = gates_are_wide(width, y.data, x.data);
    launch("swiglu_forward", gpu.stream, gate_blocks(num_rows, width), kElementThreads, 0,
           is_wide ? gate<true, T> : gate<false, T>, y.as<T>(), x.as<T>(), num_rows, width);
  });
}

void SwigluBackward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t num_rows = dy.rows(), width = dy.columns();
    const bool is_wide = gates_are_wide(width, dx.data, dy.data, x.data);
    launch("swiglu_backward", gpu.stream, gate_blocks(num_rows, width), kElementThreads, 0,
           is_wide ? gate_backward<true, T> : gate_backward<false, T>, dx.as<T>(), dy.as<T>(),
           x.as<T>(), num_rows, width, write);
  });
}

}  // namespace ebb
