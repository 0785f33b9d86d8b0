#include <limits>

#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/row_groups.h"

namespace ebb::cuda {
namespace {

template <int kWarps, class T>
__global__ void __launch_bounds__(kWarps* kWarp) softmax_rows(T* y, const T* x, RowGroups row) {
  float* const scratch = shared_memory<float>();
  const T* const from = x + row.first_element();
  T* const to = y + row.first_element();
  float top = -std::numeric_limits<float>::infinity();
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto group = load_columns<count()>(row, from, i);
#pragma unroll
    for (int j = 0; j < count(); ++j) top = fmaxf(top, to_float(group.of[j]));
  });
  top = max_of_block<kWarps>(top, scratch);
  float sum = 0.0f;
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto group = load_columns<count()>(row, from, i);
#pragma unroll
    for (int j = 0; j < count(); ++j) sum += expf(to_float(group.of[j]) - top);
  });
  const float factor = 1.0f / sum_of_block<kWarps>(sum, scratch);
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto group = load_columns<count()>(row, from, i);
    float values[count()];
#pragma unroll
    for (int j = 0; j < count(); ++j) values[j] = expf(to_float(group.of[j]) - top) * factor;
    store_columns(row, to, i, values);
  });
}

template <int kWarps, class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    differentiate_softmax_rows(T* dx, const T* dy, const T* y, RowGroups row, Write write) {
  float* const scratch = shared_memory<float>();
  const T* const result = y + row.first_element();
  const T* const gradient = dy + row.first_element();
  T* const to = dx + row.first_element();
  float sum = 0.0f;
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto values = load_columns<count()>(row, result, i);
    const auto gradients = load_columns<count()>(row, gradient, i);
#pragma unroll
    for (int j = 0; j < count(); ++j) {
      sum = fmaf(to_float(gradients.of[j]), to_float(values.of[j]), sum);
    }
  });
  const float mean = sum_of_block<kWarps>(sum, scratch);  // of dy, weighted by y
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto values = load_columns<count()>(row, result, i);
    const auto gradients = load_columns<count()>(row, gradient, i);
    Group<T, count()> before = {};
    if (write == Write::Add) before = load_columns<count()>(row, to, i);
    float results[count()];
#pragma unroll
    for (int j = 0; j < count(); ++j) {
      const float value = to_float(values.of[j]) * (to_float(gradients.of[j]) - mean);
      results[j] = write == Write::Add ? to_float(before.of[j]) + value : value;
    }
    store_columns(row, to, i, results);
  });
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void SoftmaxForward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    with_row_warps(x.columns(), [&](auto warps) {
      using T = decltype(zero);
      launch("softmax_forward", gpu.stream, blocks_for(x.rows(), 1), warps() * kWarp,
             warps() * sizeof(float), softmax_rows<warps(), T>, y.as<T>(), x.as<T>(),
             row_groups(x, y));
    });
  });
}

void SoftmaxBackward::run(const GpuLaunch& gpu) const {
  with_float_type(y.dtype, [&](auto zero) {
    with_row_warps(y.columns(), [&](auto warps) {
      using T = decltype(zero);
      launch("softmax_backward", gpu.stream, blocks_for(y.rows(), 1), warps() * kWarp,
             warps() * sizeof(float), differentiate_softmax_rows<warps(), T>, dx.as<T>(),
             dy.as<T>(), y.as<T>(), row_groups(y, dx, dy), write);
    });
  });
}

}  // namespace ebb
