// The arithmetic of adamw.h in vectors, and the accesses of the loops to the planes.
// Compiled once for each instruction set: include this file only in a foreach_target source.
#if defined(EBB_CPU_ADAM_ADAMW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_ADAMW_INL_H_
#undef EBB_CPU_ADAM_ADAMW_INL_H_
#else
#define EBB_CPU_ADAM_ADAMW_INL_H_
#endif

#include <type_traits>

#include "cpu_adam/adamw.h"
#include "cpu_adam/master-inl.h"
#include "device/adamw_planes.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Elements per iteration of the main loop: one cache line of 16-bit planes, two of fp32 planes.
constexpr int64_t kUnroll = 32;
/// The prefetch distance in elements. A shorter distance is faster on Zen 3 and 4
/// (docs/decisions.md).
inline int64_t prefetch_distance() { return __builtin_cpu_is("amdfam19h") ? 96 : 512; }

template <class W, class G>
Remainder<W>* remainder_at(const AdamWView<W, G>& at, int64_t i) {
  return std::is_same_v<W, float> ? nullptr : at.remainder + i;
}

/// The view from element `first` on.
template <class W, class G>
AdamWView<W, G> from(const AdamWView<W, G>& at, int64_t first) {
  return {at.weight + first, remainder_at(at, first), at.momentum + first, at.variance + first,
          at.gradient + first};
}

template <class D>
HWY_INLINE hn::Vec<D> load_master(D d, const float* weight, const int16_t*) {
  return hn::LoadU(d, weight);
}

template <class D>
HWY_INLINE void store_master(D d, hn::Vec<D> master, float* weight, int16_t*) {
  hn::StoreU(master, d, weight);
}

template <class D>
HWY_INLINE hn::Vec<D> load_master(D d, const F16*, const float* master) {
  return hn::LoadU(d, master);
}

template <class D>
HWY_INLINE void store_master(D d, hn::Vec<D> master, F16* weight, float* at) {
  hn::StoreU(master, d, at);
  store_f16(d, master, weight);
}

template <class D, class W, class G>
HWY_INLINE hn::Vec<D> load_master(D d, const AdamWView<W, G>& at, int64_t i) {
  return load_master(d, at.weight + i, remainder_at(at, i));
}

template <class D, class W, class G>
HWY_INLINE void store_master(D d, hn::Vec<D> master, const AdamWView<W, G>& at, int64_t i) {
  store_master(d, master, at.weight + i, remainder_at(at, i));
}

/// Stores two consecutive vectors of masters.
template <class D, class W, class G>
HWY_INLINE void store_masters(D d, hn::Vec<D> first, hn::Vec<D> second, const AdamWView<W, G>& at,
                              int64_t i) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<W, BF16>) {
    return store_masters(d, first, second, at.weight + i, remainder_at(at, i));
  }
#endif
  store_master(d, first, at, i);
  store_master(d, second, at, i + static_cast<int64_t>(hn::Lanes(d)));
}

/// The terms that a gradient adds to the moments.
template <class D>
struct Shares {
  hn::Vec<D> momentum, variance;
};

// Mul and Add, never MulAdd: contraction would make the bits depend on the instruction set.
template <class D>
HWY_INLINE Shares<D> shares_of(D d, hn::Vec<D> gradient, const AdamWCoefficients& c) {
  const auto g = hn::Mul(gradient, hn::Set(d, c.gradient_scale));
  return {hn::Mul(hn::Set(d, c.one_minus_beta1), g),
          hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g)};
}

template <class D>
struct Moments {
  hn::Vec<D> m, v;
};

template <class D>
HWY_INLINE Moments<D> moments_after(D d, const Moments<D>& old, const Shares<D>& add,
                                    const AdamWCoefficients& c) {
  return {hn::Add(hn::Mul(hn::Set(d, c.beta1), old.m), add.momentum),
          hn::Add(hn::Mul(hn::Set(d, c.beta2), old.v), add.variance)};
}

/// The part of the change of a parameter that comes from the moments.
template <class D>
HWY_INLINE hn::Vec<D> step_of(D d, const Moments<D>& now, const AdamWCoefficients& c) {
  const auto denominator =
      hn::Add(hn::Mul(hn::Sqrt(now.v), hn::Set(d, c.v_correction)), hn::Set(d, c.epsilon));
  return hn::Mul(hn::Set(d, c.step_size), hn::Div(now.m, denominator));
}

template <class D>
HWY_INLINE hn::Vec<D> parameter_after(D d, hn::Vec<D> old, hn::Vec<D> step,
                                      const AdamWCoefficients& c) {
  return hn::Sub(old, hn::Add(hn::Mul(hn::Set(d, c.decay_rate), old), step));
}

template <class D, class W, class G>
HWY_INLINE Moments<D> load_moments(D d, const AdamWView<W, G>& at, int64_t i) {
  return {hn::LoadU(d, at.momentum + i), hn::LoadU(d, at.variance + i)};
}

template <class D, class W, class G>
HWY_INLINE void store_moments(D d, const Moments<D>& moments, const AdamWView<W, G>& at,
                              int64_t i) {
  hn::StoreU(moments.m, d, at.momentum + i);
  hn::StoreU(moments.v, d, at.variance + i);
}

template <class T>
HWY_INLINE void prefetch_group(const T* plane) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < kUnroll; i += kLine) hwy::Prefetch(plane + i);
}

template <class W, class G>
HWY_INLINE void prefetch_moments(const AdamWView<W, G>& at, int64_t i) {
  prefetch_group(at.gradient + i);
  prefetch_group(at.momentum + i);
  prefetch_group(at.variance + i);
}

template <class W, class G>
HWY_INLINE void prefetch_masters(const AdamWView<W, G>& at, int64_t i) {
  prefetch_group(at.weight + i);
  if constexpr (!std::is_same_v<W, float>) prefetch_group(at.remainder + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
