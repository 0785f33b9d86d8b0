#include <cstdint>
#include <limits>

#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/wide.h"
#include "device/ignored_label.h"

namespace ebb::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;  // a block computes one row
constexpr int64_t kSumLanes = 64;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Statistics of the logits of one row: see CrossEntropyStatistics.
struct RowStatistics {
  float top, sum, at_target;
};

struct Slice {
  int64_t first, width, num_classes;
  int64_t stride;   // of rows
  bool in_groups;   // each row is a whole number of groups, so shapes say which thread adds what
  bool is_aligned;  // a group is one access to memory
  __device__ bool has(int32_t target) const { return target >= first && target < first + width; }
};

/// Calls f(i, group) for the groups of kCount elements from element `begin` to `end` that belong to
/// this thread.
template <int kCount, class T, class F>
__device__ void for_each_group(const T* x, int64_t begin, int64_t end, bool is_aligned,
                               const F& f) {
  for (int64_t i = begin + threadIdx.x * kCount; i < end; i += kThreads * kCount) {
    f(i, is_aligned ? load_group<true, kCount>(x, i, end) : load_group<false, kCount>(x, i, end));
  }
}

/// Calls f for groups that cover a row.
template <class T, class F>
__device__ void for_each_group(const T* x, const Slice& slice, const F& f) {
  const int64_t end = slice.in_groups ? slice.width / kWide<T> * kWide<T> : 0;
  for_each_group<kWide<T>>(x, 0, end, slice.is_aligned, f);
  for_each_group<1>(x, end, slice.width, false, f);
}

/// The greatest element, and the sum of e^(element - greatest), of the elements of one thread.
struct Partial {
  float top = kMinusInfinity, sum = 0.0f;

  template <class T, int kCount>
  __device__ void add(const Group<T, kCount>& group) {
    float values[kCount], greatest = top;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      values[j] = to_float(group.of[j]);
      greatest = fmaxf(greatest, values[j]);
    }
    if (greatest > top) sum *= expf(top - greatest);
    top = greatest;
    const float from = top == kMinusInfinity ? 0.0f : top;  // not infinity - infinity
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += expf(values[j] - from);
  }
};

__device__ float loss_of(const RowStatistics& s) {
  const double shifted = static_cast<double>(s.at_target) - static_cast<double>(s.top);
  return static_cast<float>(log(static_cast<double>(s.sum)) - shifted);
}

/// x = (softmax - onehot) * scale for the classes of a slice, rounded once.
template <class T>
__device__ void write_gradient(T* x, const Slice& slice, const RowStatistics& s, int32_t target,
                               float scale) {
  const float factor = scale / s.sum;
  const float at_target = (expf(s.at_target - s.top) / s.sum - 1.0f) * scale;
  for_each_group(x, slice, [&]<int kCount>(int64_t i, Group<T, kCount> group) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float value = expf(to_float(group.of[j]) - s.top) * factor;
      group.of[j] = T(slice.first + i + j == target ? at_target : value);
    }
    if (kCount > 1 && slice.is_aligned) {
      store_group<true>(x, i, slice.width, group);
    } else {
      store_group<false>(x, i, slice.width, group);
    }
  });
}

template <class T>
__device__ void write_zeros(T* x, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += kThreads) x[i] = T(0.0f);
}

/// Combines the statistics of a slice with those of the slices before. Every thread gets the
/// result.
template <class T>
__device__ RowStatistics statistics_of(const T* x, const Slice& slice, const RowStatistics& before,
                                       int32_t target, float* scratch) {
  Partial partial;
  for_each_group(x, slice, [&](int64_t, const auto& group) { partial.add(group); });
  RowStatistics s = before;
  s.top = fmaxf(max_of_block<kWarps>(partial.top, scratch), before.top);
  // A thread without elements has a sum of 0 and must not compute infinity - infinity.
  const float own = partial.sum != 0.0f ? partial.sum * expf(partial.top - s.top) : 0.0f;
  s.sum = sum_of_block<kWarps>(own, scratch);
  if (slice.first > 0) s.sum += before.sum * expf(before.top - s.top);
  if (slice.has(target)) s.at_target = to_float(x[target - slice.first]);
  return s;
}

__device__ RowStatistics nothing_known() { return {kMinusInfinity, 0.0f, kMinusInfinity}; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_rows(float* losses, T* logits, const int32_t* targets, Slice slice,
                       bool with_gradient, float scale) {
  float* scratch = shared_memory<float>();
  const int64_t row = blockIdx.x;
  T* x = logits + row * slice.stride;
  const int32_t target = targets[row];
  if (target == kIgnoredLabel) {
    if (threadIdx.x == 0) losses[row] = 0.0f;
    if (with_gradient) write_zeros(x, slice.width);
    return;
  }
  const RowStatistics s = statistics_of(x, slice, nothing_known(), target, scratch);
  if (threadIdx.x == 0) losses[row] = loss_of(s);
  __syncthreads();  // every thread has read the logit of the target
  if (with_gradient) write_gradient(x, slice, s, target, scale);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_statistics(float* losses, RowStatistics* statistics, const T* logits,
                   const int32_t* targets, Slice slice) {
  float* scratch = shared_memory<float>();
  const int64_t row = blockIdx.x;
  const int32_t target = targets[row];
  const bool is_last = slice.first + slice.width == slice.num_classes;
  if (target == kIgnoredLabel) {
    if (is_last && threadIdx.x == 0) losses[row] = 0.0f;
    return;
  }
  const RowStatistics before = slice.first == 0 ? nothing_known() : statistics[row];
  const RowStatistics s =
      statistics_of(logits + row * slice.stride, slice, before, target, scratch);
  __syncthreads();  // every thread has read the earlier statistics
  if (threadIdx.x != 0) return;
  statistics[row] = s;
  if (is_last) losses[row] = loss_of(s);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    slice_gradient(const RowStatistics* statistics, T* logits, const int32_t* targets, Slice slice,
                   float scale) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * slice.stride;
  if (targets[row] == kIgnoredLabel) return write_zeros(x, slice.width);
  write_gradient(x, slice, statistics[row], targets[row], scale);
}

/// Adds in 64 partial sums, then in a tree. The order of the additions is part of the result.
__global__ void __launch_bounds__(kSumLanes)
    sum_in_tree(double* total, const float* values, int64_t n, Write write) {
  double* upper = shared_memory<double>();
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kSumLanes) sum += static_cast<double>(values[i]);
  if (threadIdx.x >= kWarp) upper[threadIdx.x - kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  sum += upper[threadIdx.x];
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  if (threadIdx.x == 0) *total = write == Write::Add ? *total + sum : sum;
}

RowStatistics* rows_of(const Tensor& statistics) {
  return reinterpret_cast<RowStatistics*>(statistics.as<float>());
}

Slice slice_of(const Tensor& logits, int64_t first, int64_t width, int64_t num_classes) {
  const auto row_bytes = static_cast<size_t>(logits.columns()) * size_of(logits.dtype);
  return {.first = first,
          .width = width,
          .num_classes = num_classes,
          .stride = logits.columns(),
          .in_groups = row_bytes % 16 == 0,
          .is_aligned = is_aligned(logits.data, 16)};
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void CrossEntropy::run(const GpuLaunch& gpu) const {
  check_indices(gpu, targets, width(), kIgnoredLabel, DataError::Target);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Slice all = slice_of(logits, 0, width(), width());
    launch("cross_entropy", gpu.stream, blocks_for(logits.rows(), 1), kThreads,
           kWarps * sizeof(float), cross_entropy_rows<T>, losses.as<float>(), logits.as<T>(),
           targets.as<int32_t>(), all, gradient_scale.has_value(), gradient_scale.value_or(0.0f));
  });
}

void CrossEntropyStatistics::run(const GpuLaunch& gpu) const {
  check_indices(gpu, targets, slice.num_classes, kIgnoredLabel, DataError::Target);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Slice part = slice_of(logits, slice.first, slice.count, slice.num_classes);
    launch("cross_entropy_statistics", gpu.stream, blocks_for(logits.rows(), 1), kThreads,
           kWarps * sizeof(float), add_statistics<T>, losses.as<float>(), rows_of(statistics),
           logits.as<T>(), targets.as<int32_t>(), part);
  });
}

void CrossEntropyGradient::run(const GpuLaunch& gpu) const {
  check_indices(gpu, targets, slice.num_classes, kIgnoredLabel, DataError::Target);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Slice part = slice_of(logits, slice.first, slice.count, slice.num_classes);
    launch("cross_entropy_gradient", gpu.stream, blocks_for(logits.rows(), 1), kThreads, 0,
           slice_gradient<T>, rows_of(statistics), logits.as<T>(), targets.as<int32_t>(), part,
           gradient_scale);
  });
}

void Sum::run(const GpuLaunch& gpu) const {
  launch("sum", gpu.stream, dim3(1), kSumLanes, kWarp * sizeof(double), sum_in_tree,
         total.as<double>(), values.as<float>(), values.num_elements(), write);
}

}  // namespace ebb
