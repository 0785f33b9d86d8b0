#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/row_groups.h"

namespace ebb::cuda {
namespace {

/// dx: null if there is no gradient.
template <int kWarps, class T, class Target>
__global__ void __launch_bounds__(kWarps* kWarp)
    squared_error_rows(float* losses, T* dx, const T* x, const Target* targets, RowGroups row,
                       Write write, float gradient_scale) {
  float* const scratch = shared_memory<float>();
  const T* const values = x + row.first_element();
  const Target* const wanted = targets + row.first_element();
  const auto n = static_cast<float>(row.columns);
  float sum = 0.0f;
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto group = load_columns<count()>(row, values, i);
    const auto target = load_columns<count()>(row, wanted, i);
#pragma unroll
    for (int j = 0; j < count(); ++j) {
      const float d = to_float(group.of[j]) - to_float(target.of[j]);
      sum = fmaf(d, d, sum);
    }
  });
  sum = sum_of_block<kWarps>(sum, scratch);
  if (threadIdx.x == 0) losses[blockIdx.x] = __fdiv_rn(sum, n);
  if (dx == nullptr) return;
  T* const to = dx + row.first_element();
  const float factor = __fdiv_rn(2.0f * gradient_scale, n);
  for_each_group<T>(row, [&](int64_t i, auto count) {
    const auto group = load_columns<count()>(row, values, i);
    const auto target = load_columns<count()>(row, wanted, i);
    write_columns<count()>(row, to, i, write, [&](int j) {
      return (to_float(group.of[j]) - to_float(target.of[j])) * factor;
    });
  });
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void MeanSquaredError::run(const GpuLaunch& gpu) const {
  const RowGroups row = dx ? row_groups(x, targets, dx) : row_groups(x, targets);
  with_row_type(x, [&](auto x_zero, auto warps) {
    with_float_type(targets.dtype, [&](auto target_zero) {
      using T = decltype(x_zero);
      using Target = decltype(target_zero);
      launch_rows<warps()>("mean_squared_error", gpu.stream, x.rows(),
                           squared_error_rows<warps(), T, Target>, losses.as<float>(),
                           dx ? dx.as<T>() : nullptr, x.as<T>(), targets.as<Target>(), row, write,
                           gradient_scale);
    });
  });
}

}  // namespace ebb
