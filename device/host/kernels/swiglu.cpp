#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_SWIGLU_ARGUMENTS_
#define EBB_HOST_KERNELS_SWIGLU_ARGUMENTS_
namespace ebb {
namespace {

struct SwigluOperands {
  DType dtype;
  int64_t num_rows, width;  // width of y
  void* to;                 // y, or dx
  const void* dy;           // backward only
  const void* x;
  Write write;

  int64_t rows_a_task() const { return std::max<int64_t>(1, 8192 / width); }
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// Computes e^-x; silu(x) = x / (1 + e^-x).
HWY_INLINE Wide negative_exponential(const Wide& x) {
  return exp(min(broadcast(0.0f) - x, broadcast(88.0f)));
}

template <class T>
void gate_row(const SwigluOperands& f, int64_t row) {
  const T* gates = static_cast<const T*>(f.x) + row * 2 * f.width;
  const T* ups = gates + f.width;
  T* y = static_cast<T*>(f.to) + row * f.width;
  for (int64_t i = 0; i < f.width; i += kWide) {
    const int64_t left = f.width - i;
    const Wide gate = load_up_to(gates + i, left);
    const Wide silu = gate / (broadcast(1.0f) + negative_exponential(gate));
    store_up_to(y + i, silu * load_up_to(ups + i, left), left);
  }
}

template <class T>
HWY_INLINE void write_up_to(T* to, const Wide& value, int64_t left, Write write) {
  store_up_to(to, write == Write::Add ? load_up_to(to, left) + value : value, left);
}

/// For large gates the slope is 0 or 1. Its products stay finite, because s falls faster than the
/// exponential and the gate grow.
template <class T>
void gate_row_backward(const SwigluOperands& f, int64_t row) {
  const T* gates = static_cast<const T*>(f.x) + row * 2 * f.width;
  const T* ups = gates + f.width;
  const T* dys = static_cast<const T*>(f.dy) + row * f.width;
  T* dgates = static_cast<T*>(f.to) + row * 2 * f.width;
  T* dups = dgates + f.width;
  for (int64_t i = 0; i < f.width; i += kWide) {
    const int64_t left = f.width - i;
    const Wide gate = load_up_to(gates + i, left), up = load_up_to(ups + i, left);
    const Wide dy = load_up_to(dys + i, left);
    const Wide exponential = negative_exponential(gate);
    const Wide s = broadcast(1.0f) / (broadcast(1.0f) + exponential), silu = gate * s;
    const Wide slope = fma(silu, exponential * s, s);
    write_up_to(dgates + i, dy * up * slope, left, f.write);
    write_up_to(dups + i, dy * silu, left, f.write);
  }
}

void run_swiglu(const SwigluOperands& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, f.rows_a_task(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (f.dy == nullptr) {
          gate_row<decltype(zero)>(f, row);
        } else {
          gate_row_backward<decltype(zero)>(f, row);
        }
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_swiglu);

void SwigluForward::run(const HostLaunch& host) const {
  const SwigluOperands f{x.dtype, y.rows(), y.columns(), y.data, nullptr, x.data, Write::Store};
  HWY_DYNAMIC_DISPATCH(run_swiglu)(f, host.team);
}

void SwigluBackward::run(const HostLaunch& host) const {
  const SwigluOperands f{x.dtype, dy.rows(), dy.columns(), dx.data, dy.data, x.data, write};
  HWY_DYNAMIC_DISPATCH(run_swiglu)(f, host.team);
}

}  // namespace ebb
#endif
