// Sixteen floats at a time, whatever the width of the machine's vectors.
//
// Per-target code: include it inside a foreach_target file. The width is fixed so that sums over
// lanes, and with them every result, are the same on each instruction set that has fused
// multiply-add.
#if defined(EBB_HOST_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_SIMD_INL_H_
#undef EBB_HOST_KERNELS_SIMD_INL_H_
#else
#define EBB_HOST_KERNELS_SIMD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "device/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kWide = 16;
using PartTag = hn::CappedTag<float, kWide>;
using Part = hn::Vec<PartTag>;
inline constexpr int64_t kPartLanes = static_cast<int64_t>(hn::MaxLanes(PartTag()));
inline constexpr int64_t kParts = kWide / kPartLanes;

struct Wide {
  Part part[kParts];
};

HWY_INLINE Part load_part(const float* p) { return hn::LoadU(PartTag(), p); }

HWY_INLINE Part load_part(const BF16* p) {
  const hn::Rebind<uint16_t, PartTag> d16;
  const hn::Rebind<uint32_t, PartTag> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, &p->bits));
  return hn::BitCast(PartTag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE void store_part(float* p, Part v) { hn::StoreU(v, PartTag(), p); }

// Rounds to nearest even by hand: the library's own conversion truncates.
HWY_INLINE void store_part(BF16* p, Part v) {
  const hn::Rebind<uint16_t, PartTag> d16;
  const hn::Rebind<int32_t, PartTag> di32;
  const hn::Rebind<uint32_t, PartTag> d32;
  const auto x = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(x);
  const auto odd = hn::And(high, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(x, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet_nan = hn::Or(high, hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto bits = hn::IfThenElse(is_nan, quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, &p->bits);
}

template <class T>
HWY_INLINE Wide load(const T* p) {
  Wide r;
  for (int64_t i = 0; i < kParts; ++i) r.part[i] = load_part(p + i * kPartLanes);
  return r;
}

template <class T>
HWY_INLINE void store(T* p, const Wide& v) {
  for (int64_t i = 0; i < kParts; ++i) store_part(p + i * kPartLanes, v.part[i]);
}

/// The first n of sixteen; the other lanes are `fill`. n may be 16 or more.
template <class T>
HWY_INLINE Wide load_up_to(const T* p, int64_t n, float fill = 0.0f) {
  if (HWY_LIKELY(n >= kWide)) return load(p);
  alignas(64) float lanes[kWide];
  for (int64_t i = 0; i < kWide; ++i) lanes[i] = i < n ? static_cast<float>(p[i]) : fill;
  return load(lanes);
}

template <class T>
HWY_INLINE void store_up_to(T* p, const Wide& v, int64_t n) {
  if (HWY_LIKELY(n >= kWide)) return store(p, v);
  alignas(64) float lanes[kWide];
  store(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<T>(lanes[i]);
}

HWY_INLINE Wide broadcast(float x) {
  Wide r;
  for (Part& part : r.part) part = hn::Set(PartTag(), x);
  return r;
}

#define EBB_WIDE_BINARY(name, Op)                                                  \
  HWY_INLINE Wide name(const Wide& a, const Wide& b) {                             \
    Wide r;                                                                        \
    for (int64_t i = 0; i < kParts; ++i) r.part[i] = hn::Op(a.part[i], b.part[i]); \
    return r;                                                                      \
  }
EBB_WIDE_BINARY(operator+, Add)
EBB_WIDE_BINARY(operator-, Sub)
EBB_WIDE_BINARY(operator*, Mul)
EBB_WIDE_BINARY(operator/, Div)
EBB_WIDE_BINARY(max, Max)
EBB_WIDE_BINARY(min, Min)
#undef EBB_WIDE_BINARY

/// a * b + c, rounded once where the machine can.
HWY_INLINE Wide fma(const Wide& a, const Wide& b, const Wide& c) {
  Wide r;
  for (int64_t i = 0; i < kParts; ++i) r.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return r;
}

/// e^x for x <= 88; NaN stays NaN, so that a broken number is seen in the loss.
HWY_INLINE Wide exp(const Wide& x) {
  Wide r;
  for (int64_t i = 0; i < kParts; ++i) {
    const Part v = x.part[i];
    r.part[i] = hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(PartTag(), v));
  }
  return r;
}

/// Lanes where x > 0 keep y, the others are zero.
HWY_INLINE Wide where_positive(const Wide& x, const Wide& y) {
  Wide r;
  for (int64_t i = 0; i < kParts; ++i) {
    const auto positive = hn::Gt(x.part[i], hn::Zero(PartTag()));
    r.part[i] = hn::IfThenElseZero(positive, y.part[i]);
  }
  return r;
}

struct AddOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct MaxOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

#if HWY_TARGET == HWY_SCALAR
template <class Op>
HWY_INLINE float fold_vector(const Op&, PartTag, Part v) {
  return hn::GetLane(v);
}
#else
template <class Op, class D>
HWY_INLINE float fold_vector(const Op& op, D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return fold_vector(op, half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

/// Folds lane i with lane i + 8, then i + 4, 2, 1: the same tree for every vector width.
template <class Op>
HWY_INLINE float fold(const Op& op, Wide v) {
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) v.part[i] = op(v.part[i], v.part[i + half]);
  }
  return fold_vector(op, PartTag(), v.part[0]);
}

HWY_INLINE float reduce_add(const Wide& v) { return fold(AddOp(), v); }
HWY_INLINE float reduce_max(const Wide& v) { return fold(MaxOp(), v); }

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
