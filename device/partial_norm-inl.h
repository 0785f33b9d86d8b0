// The sum of the squares of a piece of a finished gradient, as SquaredNormPieces
// (device/kernels/update.h) defines it. Include this file only in a foreach_target source.
#if defined(EBB_DEVICE_PARTIAL_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_DEVICE_PARTIAL_NORM_INL_H_
#undef EBB_DEVICE_PARTIAL_NORM_INL_H_
#else
#define EBB_DEVICE_PARTIAL_NORM_INL_H_
#endif

#include <cstdint>

#include "device/dtype.h"
#include "device/f16-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kNumPartialSums = 64;

/// Partial sum l adds the squares of elements l, l + 64, ... in fp64, where a product of two fp32
/// is exact.
struct PartialSums {
  double sums[kNumPartialSums] = {};

  /// Adds n more elements. REQUIRES: the number of elements added so far is a multiple of 64.
  template <class T>
  void add(const T* x, int64_t n) {
    int64_t i = 0;
    for (; i + kNumPartialSums <= n; i += kNumPartialSums) add_to_each(x + i);
    for (int64_t l = 0; i + l < n; ++l) add_one(l, x[i + l]);
  }
  double total() {
    for (int64_t half = kNumPartialSums / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
    }
    return sums[0];
  }

 private:
  template <class T>
  void add_to_each(const T* x) {
    for (int64_t l = 0; l < kNumPartialSums; ++l) add_one(l, x[l]);
  }
  /// Compilers do not vectorise the conversion of F16, so it is done in vectors first.
  void add_to_each(const F16* x) {
    const hn::CappedTag<float, kNumPartialSums> d;
    alignas(64) float wide[kNumPartialSums];
    for (int64_t l = 0; l < kNumPartialSums; l += static_cast<int64_t>(hn::Lanes(d))) {
      hn::StoreU(load_f16(d, x + l), d, wide + l);
    }
    add_to_each(wide);
  }
  void add_one(int64_t l, float x) {
    const double v = static_cast<double>(x);
    sums[l] += v * v;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
