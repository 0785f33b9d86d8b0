// Operations on sixteen floats, independent of the width of the machine's vectors.
//
// Compiled once for each instruction set: include this file only in a foreach_target source. The
// width is fixed, so sums over vector elements, and therefore all results, are the same on every
// instruction set that has fused multiply-add.
#if defined(EBB_HOST_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_SIMD_INL_H_
#undef EBB_HOST_KERNELS_SIMD_INL_H_
#else
#define EBB_HOST_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "device/bf16-inl.h"
#include "device/dtype.h"
#include "device/f16-inl.h"
#include "device/kernel_arguments.h"
#include "device/stream_lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kWide = 16;
using PartTag = hn::CappedTag<float, kWide>;
using Part = hn::Vec<PartTag>;
inline constexpr int64_t kPartLanes = static_cast<int64_t>(hn::MaxLanes(PartTag()));
inline constexpr int64_t kParts = kWide / kPartLanes;

// If a part has one element, sixteen copies of each operation would dominate the compile time.
#undef EBB_FOR_PARTS
#if HWY_TARGET == HWY_SCALAR
#define EBB_FOR_PARTS(i) _Pragma("GCC unroll 1") for (int64_t i = 0; i < kParts; ++i)
#else
#define EBB_FOR_PARTS(i) for (int64_t i = 0; i < kParts; ++i)
#endif

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

HWY_INLINE Part load_part(const F16* p) { return load_f16(PartTag(), p); }

HWY_INLINE void store_part(float* p, Part v) { hn::StoreU(v, PartTag(), p); }

HWY_INLINE void store_part(BF16* p, Part v) { store_bf16(PartTag(), v, p); }

HWY_INLINE void store_part(F16* p, Part v) { store_f16(PartTag(), v, p); }

template <class T>
HWY_INLINE Wide load(const T* p) {
  Wide r;
  EBB_FOR_PARTS(i) r.part[i] = load_part(p + i * kPartLanes);
  return r;
}

template <class T>
HWY_INLINE void store(T* p, const Wide& v) {
  EBB_FOR_PARTS(i) store_part(p + i * kPartLanes, v.part[i]);
}

// Load and store the ends of rows, one element after the other. Not inlined: every loop of every
// kernel calls these functions, and inlining took a third of the compile time of kernels.
template <class T>
HWY_NOINLINE void load_lanes(const T* p, int64_t n, float fill, float* lanes) {
  for (int64_t i = 0; i < kWide; ++i) lanes[i] = i < n ? static_cast<float>(p[i]) : fill;
}
template <class T>
HWY_NOINLINE void store_lanes(T* p, int64_t n, const float* lanes) {
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<T>(lanes[i]);
}

/// Loads the first n of sixteen elements; the others are `fill`. n may be 16 or more.
template <class T>
HWY_INLINE Wide load_up_to(const T* p, int64_t n, float fill = 0.0f) {
  if (HWY_LIKELY(n >= kWide)) return load(p);
  alignas(64) float lanes[kWide];
  load_lanes(p, n, fill, lanes);
  return load(lanes);
}

template <class T>
HWY_INLINE void store_up_to(T* p, const Wide& v, int64_t n) {
  if (HWY_LIKELY(n >= kWide)) return store(p, v);
  alignas(64) float lanes[kWide];
  store(lanes, v);
  store_lanes(p, n, lanes);
}

HWY_INLINE Wide broadcast(float x) {
  Wide r;
  for (Part& part : r.part) part = hn::Set(PartTag(), x);
  return r;
}

#define EBB_WIDE_BINARY(name, Op)                              \
  HWY_INLINE Wide name(const Wide& a, const Wide& b) {         \
    Wide r;                                                    \
    EBB_FOR_PARTS(i) r.part[i] = hn::Op(a.part[i], b.part[i]); \
    return r;                                                  \
  }
EBB_WIDE_BINARY(operator+, Add)
EBB_WIDE_BINARY(operator-, Sub)
EBB_WIDE_BINARY(operator*, Mul)
EBB_WIDE_BINARY(operator/, Div)
EBB_WIDE_BINARY(max, Max)
EBB_WIDE_BINARY(min, Min)
#undef EBB_WIDE_BINARY

/// Stores or adds the first n of sixteen elements.
template <class T>
HWY_INLINE void write_up_to(T* p, const Wide& v, int64_t n, Write write) {
  store_up_to(p, write == Write::Add ? load_up_to(p, n) + v : v, n);
}

/// a * b + c, rounded once if the instruction set has fused multiply-add.
HWY_INLINE Wide fma(const Wide& a, const Wide& b, const Wide& c) {
  Wide r;
  EBB_FOR_PARTS(i) r.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return r;
}

/// e^x for x <= 88. The error is at most 1 unit in the last place if the instruction set has fused
/// multiply-add. Results below the smallest normal number are 0. NaN stays NaN, so that an invalid
/// number appears in the loss.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), where q is the minimax polynomial
/// of its degree (smallest maximum relative error). Adding `shift` rounds to n and leaves the bits
/// of 2^n in the low bits of the sum.
HWY_INLINE Part exp_part(Part any_x) {
  const PartTag d;
  const hn::RebindToUnsigned<PartTag> bits;
  const Part shift = hn::Set(d, 12582912.0f + 127.0f);  // 1.5 * 2^23 + the exponent's bias
  Part x = hn::Max(hn::Set(d, -88.0f), any_x);          // a NaN in the second operand is returned
#if HWY_TARGET == HWY_SCALAR
  x = hn::IfThenElse(hn::IsNaN(any_x), any_x, x);  // here Max() never returns a NaN
#endif
  const Part shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const Part n = hn::Sub(shifted, shift);
  const Part two_to_n = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  // ln 2 is subtracted in two parts. The first part is so short that its product with n is exact.
  Part r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Two independent halves: the latency of this chain costs kernels more than the multiplications.
  const Part r2 = hn::Mul(r, r);
  const Part low = hn::MulAdd(r, hn::Set(d, 0x1.555492p-3f), hn::Set(d, 0x1.fffffcp-2f));
  Part high = hn::MulAdd(r, hn::Set(d, 0x1.1239f2p-7f), hn::Set(d, 0x1.5558f2p-5f));
  high = hn::MulAdd(r2, hn::Set(d, 0x1.6a241ap-10f), high);
  const Part tail = hn::MulAdd(r2, hn::MulAdd(r2, high, low), r);
  return hn::Mul(hn::Add(hn::Set(d, 1.0f), tail), two_to_n);
}

HWY_INLINE Wide exp(const Wide& x) {
  Wide r;
  EBB_FOR_PARTS(i) r.part[i] = exp_part(x.part[i]);
  return r;
}

/// ln x for normal x > 0, with an error of about 1e-7 relative to the larger of 1 and |ln x|. NaN
/// stays NaN.
///
/// x = 2^n m with m about 1, s = (m - 1) / (m + 1): ln m = 2 (s + s^3 / 3 + s^5 / 5 ...), |s| <
/// 0.18.
HWY_INLINE Part log_part(Part x) {
  const PartTag d;
  const hn::RebindToSigned<PartTag> di;
  const auto one_bits = hn::Set(di, 0x3f3504f3);  // bits of sqrt(1/2), where n changes
  const auto above = hn::Sub(hn::BitCast(di, x), one_bits);
  const Part n = hn::ConvertTo(d, hn::ShiftRight<23>(above));
  const auto fraction = hn::And(above, hn::Set(di, 0x007fffff));
  const Part m = hn::BitCast(d, hn::Add(fraction, one_bits));
  const Part one = hn::Set(d, 1.0f);
  const Part s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), s2 = hn::Mul(s, s);
  Part series = hn::Set(d, 2.0f / 9);
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 7));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 5));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 3));
  const Part ln_m = hn::MulAdd(hn::Mul(s2, s), series, hn::Add(s, s));
  const Part low = hn::MulAdd(n, hn::Set(d, -2.12194440e-4f), ln_m);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::MulAdd(n, hn::Set(d, 0.693359375f), low));
}

HWY_INLINE Wide log(const Wide& x) {
  Wide r;
  EBB_FOR_PARTS(i) r.part[i] = log_part(x.part[i]);
  return r;
}

/// y where x > 0, otherwise zero.
HWY_INLINE Wide where_positive(const Wide& x, const Wide& y) {
  Wide r;
  EBB_FOR_PARTS(i) {
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

/// Combines element i with element i + 8, then with i + 4, i + 2 and i + 1: the same tree for every
/// vector width.
template <class Op>
HWY_INLINE float fold(const Op& op, Wide v) {
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) v.part[i] = op(v.part[i], v.part[i + half]);
  }
  return fold_vector(op, PartTag(), v.part[0]);
}

/// Sums over all n columns. term(i, sum) returns `sum` plus the terms of columns i .. i + 15. There
/// are four independent sums, because in a single sum each addition would wait for the one before.
template <class Sum, class Term>
HWY_INLINE Sum sum_over(int64_t n, const Sum& zero, const Term& term) {
  Sum a = zero, b = zero, c = zero, d = zero;
  int64_t i = 0;
  for (; i + 4 * kWide <= n; i += 4 * kWide) {
    a = term(i, a), b = term(i + kWide, b);
    c = term(i + 2 * kWide, c), d = term(i + 3 * kWide, d);
  }
  for (; i < n; i += kWide) a = term(i, a);
  return (a + b) + (c + d);
}

HWY_INLINE float reduce_add(const Wide& v) { return fold(AddOp(), v); }
HWY_INLINE float reduce_max(const Wide& v) { return fold(MaxOp(), v); }

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
