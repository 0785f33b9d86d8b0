#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// Computes e^-x; silu(x) = x / (1 + e^-x).
HWY_INLINE Wide negative_exponential(const Wide& x) {
  return exp(min(broadcast(0.0f) - x, broadcast(88.0f)));
}

constexpr int64_t kElementsATask = 8192;

template <class T>
void gate_row(const SwigluForward& f, int64_t row) {
  const int64_t width = f.y.columns();
  const T *gates = row_of<T>(f.x, row), *ups = gates + width;
  T* y = row_of<T>(f.y, row);
  for (int64_t i = 0; i < width; i += kWide) {
    const int64_t left = width - i;
    const Wide gate = load_up_to(gates + i, left);
    const Wide silu = gate / (broadcast(1.0f) + negative_exponential(gate));
    store_up_to(y + i, silu * load_up_to(ups + i, left), left);
  }
}

/// For large gates the slope is 0 or 1. Its products stay finite, because s falls faster than the
/// exponential and the gate grow.
template <class T>
void gate_row_backward(const SwigluBackward& f, int64_t row) {
  const int64_t width = f.dy.columns();
  const T *gates = row_of<T>(f.x, row), *ups = gates + width, *dys = row_of<T>(f.dy, row);
  T *dgates = row_of<T>(f.dx, row), *dups = dgates + width;
  for (int64_t i = 0; i < width; i += kWide) {
    const int64_t left = width - i;
    const Wide gate = load_up_to(gates + i, left), up = load_up_to(ups + i, left);
    const Wide dy = load_up_to(dys + i, left);
    const Wide exponential = negative_exponential(gate);
    const Wide s = broadcast(1.0f) / (broadcast(1.0f) + exponential), silu = gate * s;
    const Wide slope = fma(silu, exponential * s, s);
    write_up_to(dgates + i, dy * up * slope, left, f.write);
    write_up_to(dups + i, dy * silu, left, f.write);
  }
}

void run_forward(const SwigluForward& f, ThreadTeam& team) {
  for_each_float_row(team, f.y, rows_of_elements(kElementsATask, f.y.columns()),
                     [&](auto zero, int64_t row) { gate_row<decltype(zero)>(f, row); });
}

void run_backward(const SwigluBackward& f, ThreadTeam& team) {
  for_each_float_row(team, f.dy, rows_of_elements(kElementsATask, f.dy.columns()),
                     [&](auto zero, int64_t row) { gate_row_backward<decltype(zero)>(f, row); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_forward);
HWY_EXPORT(run_backward);

void SwigluForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_forward)(*this, host.team);
}

void SwigluBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_backward)(*this, host.team);
}

}  // namespace ebb
#endif
