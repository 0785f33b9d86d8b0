#include "cuda/kernels/elementwise.h"

#include "cuda/kernels/launches.h"

namespace ebb::cuda {
namespace {

// GELU as GPT-2 defines it, x (1 + tanh(u)) / 2 with u = a (x + b x^3), written x s(2u) with the
// logistic function s: the same number without the cancellation for negative x.
constexpr float kGeluA = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluB = 0.044715f;

/// e^-2u
__device__ __forceinline__ float gelu_exponential(float x, float x_squared) {
  const float minus_2u = x * fmaf(x_squared, -2.0f * kGeluA * kGeluB, -2.0f * kGeluA);
  return expf(fminf(minus_2u, 88.0f));
}

__device__ __forceinline__ float gelu(float x) { return x / (1.0f + gelu_exponential(x, x * x)); }

/// Far out the slope is 0 or 1, and the square of x would overflow: x is clamped. NaN passes.
__device__ __forceinline__ float gelu_slope(float any_x) {
  const float x = any_x > 16.0f ? 16.0f : (any_x < -16.0f ? -16.0f : any_x);
  const float x_squared = x * x;
  const float exponential = gelu_exponential(x, x_squared);
  const float gate = 1.0f / (1.0f + exponential);
  const float two_u_slope = fmaf(x_squared, 6.0f * kGeluA * kGeluB, 2.0f * kGeluA);
  return fmaf(x * two_u_slope, exponential * gate * gate, gate);
}

template <class T>
struct ActivationForward {
  T* y;
  const T* x;
  Activation activation;

  __device__ float value(int64_t i) const {
    const float v = to_float(x[i]);
    if (activation == Activation::Relu) return v < 0.0f ? 0.0f : v;
    return gelu(v);
  }
  __device__ void store(int64_t i, float value) const { y[i] = T(value); }
};

template <class T>
struct ActivationBackward {
  T* dx;
  const T* dy;
  const T* x;
  Activation activation;
  Write write;

  __device__ float value(int64_t i) const {
    const float v = to_float(x[i]), d = to_float(dy[i]);
    const float slope = activation == Activation::Relu ? (v > 0.0f ? d : 0.0f) : d * gelu_slope(v);
    return write == Write::Add ? to_float(dx[i]) + slope : slope;
  }
  __device__ void store(int64_t i, float value) const { dx[i] = T(value); }
};

template <class TY, class TB>
struct Sum {
  TY* y;
  const TY* a;
  const TB* b;

  __device__ float value(int64_t i) const { return to_float(a[i]) + to_float(b[i]); }
  __device__ void store(int64_t i, float value) const { y[i] = TY(value); }
};

}  // namespace

void activation_forward(cudaStream_t stream, const Tensor& y, const Tensor& x,
                        Activation activation) {
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_for_each("activation_forward", stream,
                    ActivationForward<T>{y.as<T>(), x.as<T>(), activation}, x.num_elements());
  });
}

void activation_backward(cudaStream_t stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                         Activation activation, Write write) {
  with_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_for_each(
        "activation_backward", stream,
        ActivationBackward<T>{dx.as<T>(), dy.as<T>(), x.as<T>(), activation, write},
        x.num_elements());
  });
}

void add(cudaStream_t stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  with_type(y.dtype, [&](auto y_zero) {
    with_type(b.dtype, [&](auto b_zero) {
      using TY = decltype(y_zero);
      using TB = decltype(b_zero);
      launch_for_each("add", stream, Sum<TY, TB>{y.as<TY>(), a.as<TY>(), b.as<TB>()},
                      y.num_elements());
    });
  });
}

}  // namespace ebb::cuda
