#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {
namespace {

constexpr int kLanes = 64;   // of the fixed tree of a piece
constexpr int kAtOnce = 64;  // elements that a thread reads while it adds as many

template <class T>
struct Finish {
  T* gradient;
  const float* sums;
  const float* more_sums;  // null: there are no more

  __device__ float value(int64_t i) const {
    return more_sums == nullptr ? sums[i] : sums[i] + more_sums[i];
  }
  __device__ void store(int64_t i, float value) const { gradient[i] = T(value); }
};

/// The source if the gradients are already rounded.
template <class T>
struct AsTheyAre {
  const T* gradient;
  __device__ float value(int64_t i) const { return to_float(gradient[i]); }
  __device__ float store(int64_t, float value) const { return value; }
};

/// The source if the gradients are rounded by this kernel.
template <class T>
struct Rounded {
  Finish<T> finish;
  __device__ float value(int64_t i) const { return finish.value(i); }
  __device__ float store(int64_t i, float value) const {
    const T rounded = T(value);
    finish.gradient[i] = rounded;
    return to_float(rounded);
  }
};

/// Sums the squares of elements first, first + 64, ... before `end`, in fp64, in this order. In
/// fp64 a product of two fp32 is exact, so a fused multiply-add gives the same sum. There are few
/// threads, so each has many loads in flight: it loads the next elements before it adds the last
/// ones. kIsWhole: there are as many elements as in a whole piece.
template <bool kIsWhole, class Source>
__device__ __forceinline__ double sum_of_lane(const Source& source, int64_t first, int64_t end) {
  constexpr int64_t kStep = kAtOnce * kLanes;
  static_assert(kPieceElements % kStep == 0);
  double sum = 0.0;
  float next[kAtOnce];
  const auto load_next = [&](int64_t base) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = base + j * kLanes;
      next[j] = kIsWhole || i < end ? source.value(i) : 0.0f;
    }
  };
  if (kIsWhole || first < end) load_next(first);
  for (int64_t base = first; base < end; base += kStep) {
    float values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) values[j] = next[j];
    if (base + kStep < end) load_next(base + kStep);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = base + j * kLanes;
      if (!kIsWhole && i >= end) continue;
      const double v = static_cast<double>(source.store(i, values[j]));
      sum += v * v;
    }
  }
  return sum;
}

/// Each block sums one piece. Thread l computes partial sum l: that of elements l, l + 64, ...
template <class Source>
__global__ void __launch_bounds__(kLanes, 6)
    sum_squares(Source source, int64_t n, double* partials) {
  double* upper = shared_memory<double>();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPieceElements;
  const int64_t first = begin + threadIdx.x;
  double sum = begin + kPieceElements <= n
                   ? sum_of_lane<true>(source, first, begin + kPieceElements)
                   : sum_of_lane<false>(source, first, n);
  if (threadIdx.x >= kWarp) upper[threadIdx.x - kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  sum += upper[threadIdx.x];
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class Source>
void launch_pieces(cudaStream_t stream, const Source& source, int64_t n, const Tensor& partials) {
  launch("squared_norm_pieces", stream, blocks_for(n, kPieceElements), kLanes,
         kWarp * sizeof(double), sum_squares<Source>, source, n, partials.as<double>());
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void RoundGradient::run(const GpuLaunch& gpu) const {
  with_float_type(gradient.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Finish<T> finish{gradient.as<T>(), sums.as<float>(),
                           more_sums ? more_sums.as<float>() : nullptr};
    const int64_t n = gradient.num_elements();
    if (partials) {
      launch_pieces(gpu.stream, Rounded<T>{finish}, n, partials);
    } else {
      launch_for_each("round_gradient", gpu.stream, finish, n);
    }
  });
}

void SquaredNormPieces::run(const GpuLaunch& gpu) const {
  with_float_type(gradient.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_pieces(gpu.stream, AsTheyAre<T>{gradient.as<T>()}, gradient.num_elements(), partials);
  });
}

}  // namespace ebb
