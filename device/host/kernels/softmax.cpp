#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/softmax-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kElementsATask = 4096;

template <class T>
void softmax_row(const SoftmaxForward& f, int64_t row) {
  const int64_t n = f.x.columns();
  const T* x = row_of<T>(f.x, row);
  const Wide top = row_max(x, n);
  write_softmax<false>(row_of<T>(f.y, row), x, n, top, sum_of_exp(x, n, top), 1.0f);
}

template <class T>
void softmax_row_backward(const SoftmaxBackward& f, int64_t row) {
  const int64_t n = f.y.columns();
  const T *y = row_of<T>(f.y, row), *dy = row_of<T>(f.dy, row);
  T* dx = row_of<T>(f.dx, row);
  const Wide sum = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    return fma(load_up_to(dy + i, n - i), load_up_to(y + i, n - i), s);
  });
  const Wide mean = broadcast(reduce_add(sum));  // of dy, weighted by y
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide r = load_up_to(y + i, n - i) * (load_up_to(dy + i, n - i) - mean);
    write_up_to(dx + i, r, n - i, f.write);
  }
}

void run_forward(const SoftmaxForward& f, ThreadTeam& team) {
  for_each_float_row(team, f.x, rows_of_elements(kElementsATask, f.x.columns()),
                     [&](auto zero, int64_t row) { softmax_row<decltype(zero)>(f, row); });
}

void run_backward(const SoftmaxBackward& f, ThreadTeam& team) {
  for_each_float_row(team, f.y, rows_of_elements(kElementsATask, f.y.columns()),
                     [&](auto zero, int64_t row) { softmax_row_backward<decltype(zero)>(f, row); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_forward);
HWY_EXPORT(run_backward);

void SoftmaxForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_forward)(*this, host.team);
}

void SoftmaxBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_backward)(*this, host.team);
}

}  // namespace ebb
#endif
