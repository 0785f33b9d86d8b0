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
__device__ __forceinline__ float negative_exponential(float x) { return expf(fminf(-x, 88.0f)); }

/// A block has columns of one row of y.
struct GatePlace {
  int64_t row, column;
  __device__ explicit GatePlace(int blocks_a_row) {
    row = blockIdx.x / static_cast<unsigned>(blocks_a_row);
    const unsigned block = blockIdx.x % static_cast<unsigned>(blocks_a_row);
    column = static_cast<int64_t>(block) * kElementThreads + threadIdx.x;
  }
};

template <class T>
__global__ void __launch_bounds__(kElementThreads)
    gate(T* y, const T* x, int64_t width, int blocks_a_row) {
  const GatePlace at(blocks_a_row);
  if (at.column >= width) return;
  const T* first = x + at.row * 2 * width + at.column;
  const float g = to_float(first[0]), silu = g / (1.0f + negative_exponential(g));
  y[at.row * width + at.column] = T(silu * to_float(first[width]));
}

/// For large |x| the slope of the gate is 0 or 1. The products that compute the slope stay finite,
/// because s falls faster than the exponential and the gate grow.
template <class T>
__global__ void __launch_bounds__(kElementThreads)
    gate_backward(T* dx, const T* dy, const T* x, int64_t width, int blocks_a_row, Write write) {
  const GatePlace at(blocks_a_row);
  if (at.column >= width) return;
  const int64_t first = at.row * 2 * width + at.column;
  const float g = to_float(x[first]), up = to_float(x[first + width]);
  const float d = to_float(dy[at.row * width + at.column]);
  const float exponential = negative_exponential(g);
  const float s = 1.0f / (1.0f + exponential), silu = g * s;
  const float slope = fmaf(silu, exponential * s, s);
  float dgate = d * up * slope, dup = d * silu;
  if (write == Write::Add) {
    dgate += to_float(dx[first]);
    dup += to_float(dx[first + width]);
  }
  dx[first] = T(dgate);
  dx[first + width] = T(dup);
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

size_t RotaryTable::workspace_bytes(const GpuLaunch&) const {
  EBB_CHECK(table.columns() <= kLargestHead,
            "rotary_table: heads of " + std::to_string(table.columns()) +
                " channels; the CUDA backend has kernels for up to " +
                std::to_string(kLargestHead));
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
    const auto blocks = static_cast<int>(ceil_div(y.columns(), kElementThreads));
    launch("swiglu_forward", gpu.stream, blocks_for(y.rows() * blocks, 1), kElementThreads, 0,
           gate<T>, y.as<T>(), x.as<T>(), y.columns(), blocks);
  });
}

void SwigluBackward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto blocks = static_cast<int>(ceil_div(dy.columns(), kElementThreads));
    launch("swiglu_backward", gpu.stream, blocks_for(dy.rows() * blocks, 1), kElementThreads, 0,
           gate_backward<T>, dx.as<T>(), dy.as<T>(), x.as<T>(), dy.columns(), blocks, write);
  });
}

}  // namespace ebb
