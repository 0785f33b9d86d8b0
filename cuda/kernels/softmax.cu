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
    write_columns<count()>(row, to, i, Write::Store,
                           [&](int j) { return expf(to_float(group.of[j]) - top) * factor; });
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
    write_columns<count()>(row, to, i, write, [&](int j) {
      return to_float(values.of[j]) * (to_float(gradients.of[j]) - mean);
    });
  });
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void SoftmaxForward::run(const GpuLaunch& gpu) const {
  with_row_type(x, [&](auto zero, auto warps) {
    using T = decltype(zero);
    launch_rows<warps()>("softmax_forward", gpu.stream, x.rows(), softmax_rows<warps(), T>,
                         y.as<T>(), x.as<T>(), row_groups(x, y));
  });
}

void SoftmaxBackward::run(const GpuLaunch& gpu) const {
  with_row_type(y, [&](auto zero, auto warps) {
    using T = decltype(zero);
    launch_rows<warps()>("softmax_backward", gpu.stream, y.rows(),
                         differentiate_softmax_rows<warps(), T>, dx.as<T>(), dy.as<T>(), y.as<T>(),
                         row_groups(y, dx, dy), write);
  });
}

}  // namespace ebb
