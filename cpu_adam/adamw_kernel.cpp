#include "cpu_adam/adamw_kernel.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/adamw_kernel.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu_adam/master-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Elements to a turn of the main loop: one cache line of 16-bit planes, two of fp32 planes.
constexpr int64_t kTurn = 32;
constexpr int64_t kPrefetchAhead = 384;

/// The plane that a weight needs to be a master: its low half, or the master itself. None for fp32.
template <class Weight>
using Rest = std::conditional_t<std::is_same_v<Weight, F16>, float, int16_t>;

template <class Weight, class Gradient>
struct View {
  Weight* weight;
  Rest<Weight>* rest;
  float* momentum;
  float* variance;
  const Gradient* gradient;
};

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

// Mul and Add, never MulAdd: contraction would make the bits depend on the instruction set.
template <class D, class W, class G>
HWY_INLINE void update_vector(D d, const View<W, G>& at, int64_t i, const AdamWCoefficients& c) {
  Rest<W>* const rest = std::is_same_v<W, float> ? nullptr : at.rest + i;
  const auto g = hn::Mul(load_float(d, at.gradient + i), hn::Set(d, c.gradient_scale));
  const auto m = hn::Add(hn::Mul(hn::Set(d, c.beta1), hn::LoadU(d, at.momentum + i)),
                         hn::Mul(hn::Set(d, c.one_minus_beta1), g));
  const auto v = hn::Add(hn::Mul(hn::Set(d, c.beta2), hn::LoadU(d, at.variance + i)),
                         hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g));
  hn::StoreU(m, d, at.momentum + i);
  hn::StoreU(v, d, at.variance + i);

  const auto denominator =
      hn::Add(hn::Mul(hn::Sqrt(v), hn::Set(d, c.v_correction)), hn::Set(d, c.epsilon));
  const auto p = load_master(d, at.weight + i, rest);
  const auto change = hn::Add(hn::Mul(hn::Set(d, c.decay_rate), p),
                              hn::Mul(hn::Set(d, c.step_size), hn::Div(m, denominator)));
  store_master(d, hn::Sub(p, change), at.weight + i, rest);
}

template <class T>
HWY_INLINE void prefetch_turn(const T* plane) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < kTurn; i += kLine) hwy::Prefetch(plane + i);
}

template <class W, class G>
HWY_INLINE void prefetch_all(const View<W, G>& at, int64_t i) {
  prefetch_turn(at.gradient + i);
  prefetch_turn(at.weight + i);
  if constexpr (!std::is_same_v<W, float>) prefetch_turn(at.rest + i);
  prefetch_turn(at.momentum + i);
  prefetch_turn(at.variance + i);
}

template <class W>
Rest<W>* rest_of(const Planes& planes) {
  if constexpr (std::is_same_v<W, F16>) {
    return planes.master;
  } else {
    return planes.low;
  }
}

template <class W, class G>
void update(const Planes& planes, int64_t n, const AdamWCoefficients& c) {
  const View<W, G> at{reinterpret_cast<W*>(planes.weight), rest_of<W>(planes), planes.momentum,
                      planes.variance, reinterpret_cast<const G*>(planes.gradient)};
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + kTurn <= n; i += kTurn) {
    prefetch_all(at, std::min(i + kPrefetchAhead, n - kTurn));
    for (int64_t j = i; j < i + kTurn; j += lanes) update_vector(d, at, j, c);
  }
  for (; i < n; ++i) update_vector(d1, at, i, c);
}

template <class W>
void update_weights(const Planes& planes, int64_t n, const AdamWCoefficients& c) {
  if (planes.gradient_dtype == DType::F32) return update<W, float>(planes, n, c);
  if (planes.gradient_dtype == DType::BF16) return update<W, BF16>(planes, n, c);
  update<W, F16>(planes, n, c);
}

void update_range(const Planes& planes, int64_t n, const AdamWCoefficients& c) {
  if (planes.weight_dtype == DType::F32) return update_weights<float>(planes, n, c);
  if (planes.weight_dtype == DType::F16) return update_weights<F16>(planes, n, c);
  update_weights<BF16>(planes, n, c);
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
