#include "device/host/kernels/host_kernels.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/gradient.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"

#ifndef EBB_HOST_KERNELS_GRADIENT_ARGUMENTS_
#define EBB_HOST_KERNELS_GRADIENT_ARGUMENTS_
namespace ebb {
namespace {

struct FinishGradient {
  DType dtype;
  int64_t n;
  void* gradient;
  const float* sums;
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void finish_range(const FinishGradient& f, int64_t begin, int64_t end) {
  T* gradient = static_cast<T*>(f.gradient);
  for (int64_t i = begin; i < end; i += kWide) {
    store_up_to(gradient + i, load_up_to(f.sums + i, end - i), end - i);
  }
}

void run_finish_gradient(const FinishGradient& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.n, 16384, [&](int64_t begin, int64_t end) {
      finish_range<decltype(zero)>(f, begin, end);
    });
  });
}

constexpr int64_t kSquareLanes = 64;

/// Lane l sums the squares of elements l, l + 64, ... in fp64, where a product of two fp32 is
/// exact.
template <class T>
double sum_of_squares(const T* x, int64_t n) {
  double lanes[kSquareLanes] = {};
  int64_t i = 0;
  for (; i + kSquareLanes <= n; i += kSquareLanes) {
    for (int64_t l = 0; l < kSquareLanes; ++l) {
      const double v = static_cast<double>(static_cast<float>(x[i + l]));
      lanes[l] += v * v;
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    const double v = static_cast<double>(static_cast<float>(x[i + l]));
    lanes[l] += v * v;
  }
  for (int64_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

void run_squared_norm(double* partials, const Tensor& gradient, ThreadTeam& team) {
  with_float_type(gradient.dtype, [&](auto zero) {
    const auto* x = reinterpret_cast<const decltype(zero)*>(gradient.data);
    for_each_range(team, gradient.num_elements(), kPieceElements, [&](int64_t begin, int64_t end) {
      partials[begin / kPieceElements] = sum_of_squares(x + begin, end - begin);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_finish_gradient);
HWY_EXPORT(run_squared_norm);

void HostKernels::finish_gradient(Stream& stream, Tensor gradient, Tensor sums) {
  const int64_t n = gradient.num_elements();
  EBB_CHECK(is_float(gradient.dtype) && is_vector(sums, DType::F32, n),
            "finish_gradient: gradient (n) of a float type, sums (n) fp32");
  const FinishGradient f{gradient.dtype, n, gradient.data, sums.as<float>()};
  stream.call({.bytes = total_bytes(gradient, sums), .name = "finish_gradient"}, [this, f] {
    const auto run = HWY_DYNAMIC_DISPATCH(run_finish_gradient);
    run(f, team_);
  });
}

void HostKernels::squared_norm_pieces(Stream& stream, Tensor partials, Tensor gradient) {
  EBB_CHECK(is_float(gradient.dtype) &&
                is_vector(partials, DType::F64, ceil_div(gradient.num_elements(), kPieceElements)),
            "squared_norm_pieces: one fp64 partial for each piece of the gradient");
  stream.call({.flops = 2.0 * static_cast<double>(gradient.num_elements()),
               .bytes = total_bytes(partials, gradient),
               .name = "squared_norm_pieces"},
              [this, partials, gradient] {
                const auto run = HWY_DYNAMIC_DISPATCH(run_squared_norm);
                run(partials.as<double>(), gradient, team_);
              });
}

}  // namespace ebb
#endif
