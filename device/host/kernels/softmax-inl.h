// The softmax of a row, for the softmax and the losses.
//
// Compiled once for each instruction set: include this file only in a foreach_target source.
#if defined(EBB_HOST_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_SOFTMAX_INL_H_
#undef EBB_HOST_KERNELS_SOFTMAX_INL_H_
#else
#define EBB_HOST_KERNELS_SOFTMAX_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "device/host/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class T>
Wide row_max(const T* x, int64_t n) {
  Wide top = broadcast(kMinusInfinity);
  for (int64_t i = 0; i < n; i += kWide) top = max(top, load_up_to(x + i, n - i, kMinusInfinity));
  return broadcast(reduce_max(top));
}

/// With `keep`, replaces an fp32 row by its exponentials, so that they are not computed twice.
/// REQUIRES: a row of const values is not kept.
template <class T>
float sum_of_exp(T* x, int64_t n, const Wide& top, bool keep = false) {
  Wide sum = broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide e = exp(load_up_to(x + i, n - i, kMinusInfinity) - top);
    if constexpr (std::is_same_v<T, float>) {
      if (keep) store_up_to(x + i, e, n - i);
    }
    sum = sum + e;
  }
  return reduce_add(sum);
}

/// Computes y = softmax * scale, rounded once. y may be x.
template <bool kHoldsExponentials, class T>
void write_softmax(T* y, const T* x, int64_t n, const Wide& top, float sum, float scale) {
  const Wide factor = broadcast(scale / sum);
  for (int64_t i = 0; i < n; i += kWide) {
    Wide e = load_up_to(x + i, n - i);
    if constexpr (!kHoldsExponentials) e = exp(e - top);
    store_up_to(y + i, e * factor, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
