#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/squared_error.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T, class Target>
void squared_error_row(const MeanSquaredError& f, int64_t row) {
  const int64_t n = f.x.columns();
  const T* x = row_of<T>(f.x, row);
  const Target* targets = row_of<Target>(f.targets, row);
  const auto difference = [&](int64_t i) HWY_ATTR {
    return load_up_to(x + i, n - i) - load_up_to(targets + i, n - i);
  };
  const Wide sum = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    const Wide d = difference(i);
    return fma(d, d, s);
  });
  f.losses.as<float>()[row] = reduce_add(sum) / static_cast<float>(n);
  if (!f.dx) return;
  T* dx = row_of<T>(f.dx, row);
  const Wide factor = broadcast(2.0f * f.gradient_scale / static_cast<float>(n));
  for (int64_t i = 0; i < n; i += kWide) {
    write_up_to(dx + i, difference(i) * factor, n - i, f.write);
  }
}

void run_squared_error(const MeanSquaredError& f, ThreadTeam& team) {
  const int64_t rows_a_task = rows_of_elements(8192, f.x.columns());
  with_float_type(f.targets.dtype, [&](auto target_zero) {
    for_each_float_row(team, f.x, rows_a_task, [&](auto x_zero, int64_t row) {
      squared_error_row<decltype(x_zero), decltype(target_zero)>(f, row);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_squared_error);

void MeanSquaredError::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_squared_error)(*this, host.team);
}

}  // namespace ebb
#endif
