#include "cpu_adam/adamw_kernel.h"

#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/adamw_kernel.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu_adam/adamw-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

/// Updates the moments of a vector and returns its new masters.
template <class D, class W, class G>
HWY_INLINE hn::Vec<D> update_moments(D d, const AdamWView<W, G>& at, int64_t i,
                                     const AdamWCoefficients& c) {
  const Shares<D> add = shares_of(d, load_float(d, at.gradient + i), c);
  const Moments<D> now = moments_after(d, load_moments(d, at, i), add, c);
  store_moments(d, now, at, i);
  return parameter_after(d, load_master(d, at, i), step_of(d, now, c), c);
}

template <class W, class G>
void update(AdamWView<W, G> at, int64_t n, const AdamWCoefficients& c) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t ahead = prefetch_distance();
  int64_t i = 0;
  for (; i + kUnroll <= n; i += kUnroll) {
    const int64_t next = std::min(i + ahead, n - kUnroll);
    prefetch_moments(at, next);
    prefetch_masters(at, next);
    for (int64_t j = i; j < i + kUnroll; j += 2 * lanes) {
      const auto first = update_moments(d, at, j, c);
      store_masters(d, first, update_moments(d, at, j + lanes, c), at, j);
    }
  }
  for (; i < n; ++i) store_master(d1, update_moments(d1, at, i, c), at, i);
}

void update_range(const Planes& planes, int64_t n, const AdamWCoefficients& c) {
  with_adamw_view(planes, [&](const auto& at) { update(at, n, c); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(update_range);

void adamw_update_range(const Planes& planes, int64_t n, const AdamWCoefficients& coefficients) {
  HWY_DYNAMIC_DISPATCH(update_range)(planes, n, coefficients);
}

}  // namespace ebb
#endif
