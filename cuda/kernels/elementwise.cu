#include "cuda/kernels/dropout.h"
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {
namespace {

// GELU as GPT-2 defines it, x (1 + tanh(u)) / 2 with u = a (x + b x^3), is computed as x s(2u) with
// the logistic function s. The value is the same, without cancellation for negative x.
constexpr float kGeluA = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluB = 0.044715f;

/// e^-2u
__device__ __forceinline__ float gelu_exponential(float x, float x_squared) {
  const float minus_2u = x * fmaf(x_squared, -2.0f * kGeluA * kGeluB, -2.0f * kGeluA);
  return expf(fminf(minus_2u, kLargestExponent));
}

__device__ __forceinline__ float gelu(float x) {
  return __fdividef(x, 1.0f + gelu_exponential(x, x * x));
}

/// For large |x| the slope is 0 or 1, and the square of x would overflow, so x is clamped. NaN
/// stays NaN.
__device__ __forceinline__ float gelu_slope(float any_x) {
  const float x = any_x > 16.0f ? 16.0f : (any_x < -16.0f ? -16.0f : any_x);
  const float x_squared = x * x;
  const float exponential = gelu_exponential(x, x_squared);
  const float gate = __fdividef(1.0f, 1.0f + exponential);
  const float two_u_slope = fmaf(x_squared, 6.0f * kGeluA * kGeluB, 2.0f * kGeluA);
  return fmaf(x * two_u_slope, exponential * gate * gate, gate);
}

// GELU with the normal distribution: x Phi(x). For a >= 0, Phi(-a) = e^(-a^2 / 2) F(a) / 2, where
// F(a) = e^(t^2) erfc(t) with t = a / sqrt(2). F falls slowly, and is computed as a polynomial in
// (a - 3) / (a + 3), the same as in the host's kernels.
struct NormalTail {
  float exponential;  // e^(-x^2 / 2)
  float phi;          // Phi(-|x|)
};

/// REQUIRES: |x| <= 14, or NaN, for which the results are NaN.
__device__ __forceinline__ NormalTail normal_tail(float x) {
  const float a = fabsf(x), z = __fdividef(a - 3.0f, a + 3.0f);
  float f = 0x1.c57beap-14f;
  f = fmaf(f, z, 0x1.e60202p-13f);
  f = fmaf(f, z, -0x1.646e12p-11f);
  f = fmaf(f, z, -0x1.01f7fep-9f);
  f = fmaf(f, z, 0x1.7cba92p-8f);
  f = fmaf(f, z, 0x1.91e092p-7f);
  f = fmaf(f, z, -0x1.7a945ap-4f);
  f = fmaf(f, z, 0x1.f8bacep-3f);
  f = fmaf(f, z, -0x1.a6b66ap-2f);
  f = fmaf(f, z, 0x1.f1b89cp-3f);
  // Without `rest`, the rounding error of the square would be the relative error of the
  // exponential.
  const float square = x * x, rest = fmaf(x, x, -square), rough = expf(-0.5f * square);
  const float exponential = fmaf(rough, -0.5f * rest, rough);
  return {exponential, exponential * f * 0.5f};
}

/// Beyond these limits the tail is 0.
__device__ __forceinline__ float clamped(float x) {
  return x > 14.0f ? 14.0f : (x < -14.0f ? -14.0f : x);
}

__device__ __forceinline__ float exact_gelu(float x) {
  const float near = clamped(x);
  return (x < 0.0f ? 0.0f : x) - fabsf(near) * normal_tail(near).phi;
}

__device__ __forceinline__ float exact_gelu_slope(float any_x) {
  constexpr float kDensity = 0.398942280401432678f;  // 1 / sqrt(2 pi)
  const float x = clamped(any_x);
  const NormalTail tail = normal_tail(x);
  const float phi = x > 0.0f ? 1.0f - tail.phi : tail.phi;
  return fmaf(x * tail.exponential, kDensity, phi);
}

template <Activation kActivation>
struct Activate {
  __device__ float operator()(float x) const {
    if constexpr (kActivation == Activation::Relu) return x < 0.0f ? 0.0f : x;
    return kActivation == Activation::Gelu ? exact_gelu(x) : gelu(x);
  }
};
template <Activation kActivation>
struct ActivateBackward {
  __device__ float operator()(float x, float d) const {
    if constexpr (kActivation == Activation::Relu) return x > 0.0f ? d : 0.0f;
    return d * (kActivation == Activation::Gelu ? exact_gelu_slope(x) : gelu_slope(x));
  }
};
template <Activation kActivation>
struct AddActivateBackward {
  __device__ float operator()(float x, float d, float before) const {
    return before + ActivateBackward<kActivation>()(x, d);
  }
};

/// Calls f with the activation as a constant.
template <class F>
void with_activation(Activation activation, const F& f) {
  using enum Activation;
  if (activation == Relu) return f(std::integral_constant<Activation, Relu>{});
  if (activation == Gelu) return f(std::integral_constant<Activation, Gelu>{});
  f(std::integral_constant<Activation, GeluTanh>{});
}

struct AddElements {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct SameElement {
  __device__ float operator()(float x) const { return x; }
};

struct MultiplyElements {
  __device__ float operator()(float a, float b) const { return a * b; }
  __device__ float operator()(float a, float b, float before) const { return before + a * b; }
};

/// Some columns of each row of `from`, for `to`. The unit is a group of kCount columns.
struct Columns {
  int64_t num_groups, groups_a_row;
  int64_t to_stride, to_first, from_stride, from_first;  // in elements
  Write write;
};

template <int kCount, class T>
__global__ void __launch_bounds__(kElementThreads) copy_columns(T* to, const T* from, Columns f) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (group >= f.num_groups) return;
  const int64_t row = group / f.groups_a_row, column = group % f.groups_a_row * kCount;
  auto& target = *as_wide<Group<T, kCount>>(to + row * f.to_stride + f.to_first + column);
  auto values =
      *as_wide<const Group<T, kCount>>(from + row * f.from_stride + f.from_first + column);
  if (f.write == Write::Add) {
    const Group<T, kCount> before = target;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values.of[i] = T(to_float(before.of[i]) + to_float(values.of[i]));
    }
  }
  store_wide(&target, values);
}

template <int kCount, class T>
void launch_copy_columns(cudaStream_t stream, const CopyColumns& f) {
  const int64_t groups_a_row = f.num_columns / kCount;
  const Columns columns = {.num_groups = f.to.rows() * groups_a_row,
                           .groups_a_row = groups_a_row,
                           .to_stride = f.to.columns(),
                           .to_first = f.to_first,
                           .from_stride = f.from.columns(),
                           .from_first = f.from_first,
                           .write = f.write};
  launch("copy_columns", stream, blocks_for(columns.num_groups, kElementThreads), kElementThreads,
         0, copy_columns<kCount, T>, f.to.as<T>(), f.from.as<T>(), columns);
}

template <class T>
struct Drop {
  T* x;
  int64_t row_elements;
  Dropout dropout;
  float kept_factor;

  /// Selects 0 instead of multiplying by 0, so that a dropped NaN becomes 0.
  __device__ float value(int64_t i) const {
    const int64_t row = i / row_elements, element = i % row_elements;
    const bool dropped =
        is_dropped(dropout, static_cast<uint32_t>(row), 0, static_cast<uint32_t>(element / 4),
                   static_cast<uint32_t>(element % 4));
    return dropped ? 0.0f : to_float(x[i]) * kept_factor;
  }
  __device__ void store(int64_t i, float value) const { x[i] = T(value); }
};

}  // namespace

cudaError_t find_code() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, for_each_element<Drop<float>>);
}

}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void ApplyDropout::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Drop<T> drop{x.as<T>(), x.num_elements() / x.dim(0), dropout, dropout.kept_factor()};
    launch_for_each("dropout", gpu.stream, drop, x.num_elements());
  });
}

void ActivationForward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    with_activation(activation, [&](auto kind) {
      using T = decltype(zero);
      launch_map("activation_forward", gpu.stream, Activate<kind()>{}, x.num_elements(), y.as<T>(),
                 x.as<T>());
    });
  });
}

void ActivationBackward::run(const GpuLaunch& gpu) const {
  with_float_type(x.dtype, [&](auto zero) {
    with_activation(activation, [&](auto kind) {
      using T = decltype(zero);
      const char* const name = "activation_backward";
      const int64_t n = x.num_elements();
      if (write == Write::Add) {
        launch_map(name, gpu.stream, AddActivateBackward<kind()>{}, n, dx.as<T>(), x.as<T>(),
                   dy.as<T>(), dx.as<T>());
      } else {
        launch_map(name, gpu.stream, ActivateBackward<kind()>{}, n, dx.as<T>(), x.as<T>(),
                   dy.as<T>());
      }
    });
  });
}

void Add::run(const GpuLaunch& gpu) const {
  with_float_type(y.dtype, [&](auto y_zero) {
    with_float_type(b.dtype, [&](auto b_zero) {
      using TY = decltype(y_zero);
      using TB = decltype(b_zero);
      launch_map("add", gpu.stream, AddElements{}, y.num_elements(), y.as<TY>(), a.as<TY>(),
                 b.as<TB>());
    });
  });
}

void Accumulate::run(const GpuLaunch& gpu) const {
  if (write == Write::Add) return Add{y, y, x}.run(gpu);
  with_float_type(y.dtype, [&](auto y_zero) {
    with_float_type(x.dtype, [&](auto x_zero) {
      launch_map("convert", gpu.stream, SameElement{}, y.num_elements(), y.as<decltype(y_zero)>(),
                 x.as<decltype(x_zero)>());
    });
  });
}

void Multiply::run(const GpuLaunch& gpu) const {
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (write == Write::Add) {
      launch_map("multiply", gpu.stream, MultiplyElements{}, y.num_elements(), y.as<T>(), a.as<T>(),
                 b.as<T>(), y.as<T>());
    } else {
      launch_map("multiply", gpu.stream, MultiplyElements{}, y.num_elements(), y.as<T>(), a.as<T>(),
                 b.as<T>());
    }
  });
}

void CopyColumns::run(const GpuLaunch& gpu) const {
  with_float_type(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kCount = kWide<T>;
    const bool in_groups = to.columns() % kCount == 0 && from.columns() % kCount == 0 &&
                           to_first % kCount == 0 && from_first % kCount == 0 &&
                           num_columns % kCount == 0;
    if (in_groups && is_aligned(to.data, 16) && is_aligned(from.data, 16)) {
      launch_copy_columns<kCount, T>(gpu.stream, *this);
    } else {
      launch_copy_columns<1, T>(gpu.stream, *this);
    }
  });
}

void FillZero::run(const GpuLaunch& gpu) const {
  if (y.bytes() == 0) return;
  const cudaError_t status = cudaMemsetAsync(y.data, 0, y.bytes(), gpu.stream);
  if (status != cudaSuccess) {
    throw DeviceError(std::string("fill_zero: cudaMemsetAsync failed: ") +
                      cudaGetErrorString(status));
  }
}

}  // namespace ebb
