#include <cstring>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kElementsATask = 16384;

// GELU as GPT-2 defines it, x (1 + tanh(u)) / 2 with u = a (x + b x^3), written x s(2u) with the
// logistic function s: the same number without the cancellation for negative x.
constexpr float kGeluA = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluB = 0.044715f;

/// e^-2u
HWY_INLINE Wide gelu_exponential(const Wide& x, const Wide& x_squared) {
  const Wide minus_2u =
      x * fma(x_squared, broadcast(-2.0f * kGeluA * kGeluB), broadcast(-2.0f * kGeluA));
  return exp(min(minus_2u, broadcast(88.0f)));
}

HWY_INLINE Wide gelu(const Wide& x) { return x / (broadcast(1.0f) + gelu_exponential(x, x * x)); }

/// Clamps x, because for large |x| the slope is 0 or 1 and the square of x would overflow. A NaN
/// stays NaN.
HWY_INLINE Wide gelu_slope(const Wide& any_x) {
  const Wide x = min(broadcast(16.0f), max(broadcast(-16.0f), any_x));
  const Wide x_squared = x * x;
  const Wide exponential = gelu_exponential(x, x_squared);
  const Wide gate = broadcast(1.0f) / (broadcast(1.0f) + exponential);
  const Wide two_u_slope =
      fma(x_squared, broadcast(6.0f * kGeluA * kGeluB), broadcast(2.0f * kGeluA));
  return fma(x * two_u_slope, exponential * gate * gate, gate);
}

// The exact GELU is x Phi(x) with the normal distribution Phi. For a >= 0, Phi(-a) = e^(-a^2 / 2)
// F(a) / 2, where F(a) = e^(t^2) erfc(t) with t = a / sqrt(2). F falls slowly, so a minimax
// polynomial of (a - 3) / (a + 3) approximates it (relative error at most 1.4e-8 up to a = 14).
constexpr float kTail[] = {0x1.f1b89cp-3f,  -0x1.a6b66ap-2f, 0x1.f8bacep-3f,  -0x1.7a945ap-4f,
                           0x1.91e092p-7f,  0x1.7cba92p-8f,  -0x1.01f7fep-9f, -0x1.646e12p-11f,
                           0x1.e60202p-13f, 0x1.c57beap-14f};

struct NormalTail {
  Wide exponential;  // e^(-x^2 / 2)
  Wide phi;          // Phi(-|x|)
};

/// Clamps x where the tail is 0. A NaN stays NaN.
HWY_INLINE NormalTail normal_tail(const Wide& any_x) {
  const Wide x = min(broadcast(14.0f), max(broadcast(-14.0f), any_x));
  const Wide a = max(x, broadcast(0.0f) - x), three = broadcast(3.0f);
  const Wide z = (a - three) / (a + three);
  Wide f = broadcast(kTail[9]);
  for (int i = 8; i >= 0; --i) f = fma(f, z, broadcast(kTail[i]));
  // The rounding error of the square would become a relative error of the exponential.
  const Wide square = x * x, rest = fma(x, x, broadcast(0.0f) - square);
  const Wide half = broadcast(-0.5f), rough = exp(square * half);
  const Wide exponential = fma(rough, rest * half, rough);
  return {exponential, exponential * f * broadcast(0.5f)};
}

HWY_INLINE Wide exact_gelu(const Wide& x) {
  const Wide zero = broadcast(0.0f);
  const Wide a = min(broadcast(14.0f), max(x, zero - x));  // beyond 14, Phi(-a) is 0 in fp32
  return max(zero, x) - a * normal_tail(x).phi;
}

HWY_INLINE Wide exact_gelu_slope(const Wide& any_x) {
  const Wide x = min(broadcast(14.0f), max(broadcast(-14.0f), any_x));
  const NormalTail tail = normal_tail(x);
  const Wide phi = where_positive(x, broadcast(1.0f) - tail.phi - tail.phi) + tail.phi;
  constexpr float kDensity = 0.398942280401432678f;  // 1 / sqrt(2 pi)
  return fma(x * tail.exponential, broadcast(kDensity), phi);
}

HWY_INLINE Wide activated(const Wide& x, Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return max(broadcast(0.0f), x);
    case Activation::Gelu:
      return exact_gelu(x);
    case Activation::GeluTanh:
      break;
  }
  return gelu(x);
}

HWY_INLINE Wide activation_gradient(const Wide& x, const Wide& d, Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return where_positive(x, d);
    case Activation::Gelu:
      return d * exact_gelu_slope(x);
    case Activation::GeluTanh:
      break;
  }
  return d * gelu_slope(x);
}

template <class T>
void activate(const ActivationForward& f, int64_t begin, int64_t end) {
  const T* x = f.x.as<T>();
  T* y = f.y.as<T>();
  for (int64_t i = begin; i < end; i += kWide) {
    store_up_to(y + i, activated(load_up_to(x + i, end - i), f.activation), end - i);
  }
}

template <class T>
void activate_backward(const ActivationBackward& f, int64_t begin, int64_t end) {
  const T *x = f.x.as<T>(), *dy = f.dy.as<T>();
  T* dx = f.dx.as<T>();
  for (int64_t i = begin; i < end; i += kWide) {
    const Wide v = load_up_to(x + i, end - i), d = load_up_to(dy + i, end - i);
    write_up_to(dx + i, activation_gradient(v, d, f.activation), end - i, f.write);
  }
}

void run_forward(const ActivationForward& f, ThreadTeam& team) {
  with_float_type(f.x.dtype, [&](auto zero) {
    for_each_range(team, f.x.num_elements(), kElementsATask,
                   [&](int64_t begin, int64_t end) { activate<decltype(zero)>(f, begin, end); });
  });
}

void run_backward(const ActivationBackward& f, ThreadTeam& team) {
  with_float_type(f.x.dtype, [&](auto zero) {
    for_each_range(team, f.x.num_elements(), kElementsATask, [&](int64_t begin, int64_t end) {
      activate_backward<decltype(zero)>(f, begin, end);
    });
  });
}

template <class TY, class TA, class TB>
void add_range(TY* y, const TA* a, const TB* b, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kWide) {
    store_up_to(y + i, load_up_to(a + i, end - i) + load_up_to(b + i, end - i), end - i);
  }
}

/// y = a + b; y and a are of one type.
void run_add(const Tensor& y, const Tensor& a, const Tensor& b, ThreadTeam& team) {
  with_float_type(y.dtype, [&](auto y_zero) {
    with_float_type(b.dtype, [&](auto b_zero) {
      using TY = decltype(y_zero);
      using TB = decltype(b_zero);
      for_each_range(team, y.num_elements(), kElementsATask, [&](int64_t begin, int64_t end) {
        add_range(y.as<TY>(), a.as<TY>(), b.as<TB>(), begin, end);
      });
    });
  });
}

template <class TY, class TX>
void convert_range(TY* y, const TX* x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kWide) {
    store_up_to(y + i, load_up_to(x + i, end - i), end - i);
  }
}

/// y = x
void run_convert(const Tensor& y, const Tensor& x, ThreadTeam& team) {
  with_float_type(y.dtype, [&](auto y_zero) {
    with_float_type(x.dtype, [&](auto x_zero) {
      using TY = decltype(y_zero);
      using TX = decltype(x_zero);
      for_each_range(team, y.num_elements(), kElementsATask, [&](int64_t begin, int64_t end) {
        convert_range(y.as<TY>(), x.as<TX>(), begin, end);
      });
    });
  });
}

template <class T>
void multiply_range(const Multiply& f, int64_t begin, int64_t end) {
  const T *a = f.a.as<T>(), *b = f.b.as<T>();
  T* y = f.y.as<T>();
  for (int64_t i = begin; i < end; i += kWide) {
    const Wide r = load_up_to(a + i, end - i) * load_up_to(b + i, end - i);
    write_up_to(y + i, r, end - i, f.write);
  }
}

void run_multiply(const Multiply& f, ThreadTeam& team) {
  with_float_type(f.y.dtype, [&](auto zero) {
    for_each_range(team, f.y.num_elements(), kElementsATask, [&](int64_t begin, int64_t end) {
      multiply_range<decltype(zero)>(f, begin, end);
    });
  });
}

template <class T>
void copy_columns_of_row(const CopyColumns& f, int64_t row) {
  T* to = row_of<T>(f.to, row) + f.to_first;
  const T* from = row_of<T>(f.from, row) + f.from_first;
  if (f.write == Write::Add) return add_range(to, to, from, 0, f.num_columns);
  std::memcpy(to, from, static_cast<size_t>(f.num_columns) * sizeof(T));
}

void run_copy_columns(const CopyColumns& f, ThreadTeam& team) {
  for_each_float_row(team, f.to, rows_of_elements(kElementsATask, f.num_columns),
                     [&](auto zero, int64_t row) { copy_columns_of_row<decltype(zero)>(f, row); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_forward);
HWY_EXPORT(run_backward);
HWY_EXPORT(run_add);
HWY_EXPORT(run_convert);
HWY_EXPORT(run_multiply);
HWY_EXPORT(run_copy_columns);

void ActivationForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_forward)(*this, host.team);
}

void ActivationBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_backward)(*this, host.team);
}

void Add::run(const HostLaunch& host) const { HWY_DYNAMIC_DISPATCH(run_add)(y, a, b, host.team); }

void Multiply::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_multiply)(*this, host.team);
}

void CopyColumns::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_copy_columns)(*this, host.team);
}

void Accumulate::run(const HostLaunch& host) const {
  if (write == Write::Add) return HWY_DYNAMIC_DISPATCH(run_add)(y, y, x, host.team);
  HWY_DYNAMIC_DISPATCH(run_convert)(y, x, host.team);
}

void FillZero::run(const HostLaunch& host) const {
  for_each_range(host.team, static_cast<int64_t>(y.bytes()), int64_t{1} << 20,
                 [&](int64_t begin, int64_t end) {
                   std::memset(y.data + begin, 0, static_cast<size_t>(end - begin));
                 });
}

}  // namespace ebb
#endif
