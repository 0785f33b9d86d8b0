// The inverse of an update in vectors, and how corrections are packed, compiled once for each
// instruction set: include inside a foreach_target source only.
#if defined(EBB_CPU_ADAM_UNDO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_UNDO_INL_H_
#undef EBB_CPU_ADAM_UNDO_INL_H_
#else
#define EBB_CPU_ADAM_UNDO_INL_H_
#endif

#include <bit>

#include "cpu_adam/adamw-inl.h"
#include "cpu_adam/undo_escapes.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Elements of a lane whose corrections share a word lie so far apart.
constexpr int64_t kApart = kUndoElements / 4;

/// Lanes divide kApart.
using FloatTag = hn::CappedTag<float, kApart>;
template <class D>
using BitsOf = hn::Vec<hn::RebindToUnsigned<D>>;

/// What solves an update for its old values: the k of x + k x, which divides x by a factor.
struct Inverse {
  explicit Inverse(const AdamWCoefficients& c)
      : of_beta1(below(c.beta1)),
        of_beta2(below(c.beta2)),
        of_decay(static_cast<float>(1 / (1 - double{c.decay_rate}) - 1)) {}
  float of_beta1, of_beta2, of_decay;

 private:
  /// Moments come out 2 to 4 units in their last place too small, so that corrections lie about the
  /// middle of 0 .. 6.
  static float below(double factor) { return static_cast<float>((1 - 2 * 0x1p-23) / factor - 1); }
};

/// Bits of the values of some elements.
template <class D>
struct Bits {
  BitsOf<D> m, v, p;
};

/// About the values before an update that made `now` by way of `step`, or a little less: the
/// masters' bits by 1, so that corrections of -1 .. 1 are 0 .. 2.
template <class D>
HWY_INLINE Bits<D> invert(D d, const Values<D>& now, const Shares<D>& added, hn::Vec<D> step,
                          const Inverse& inverse) {
  const hn::RebindToUnsigned<D> du;
  const auto divided = [&](hn::Vec<D> x, float k)
                           HWY_ATTR { return hn::MulAdd(x, hn::Set(d, k), x); };
  const auto m = divided(hn::Sub(now.m, added.momentum), inverse.of_beta1);
  const auto v = divided(hn::Sub(now.v, added.variance), inverse.of_beta2);
  // Not divided(): the change, small beside the parameter, is put together first and rounds less.
  const auto change = hn::MulAdd(hn::Add(now.p, step), hn::Set(d, inverse.of_decay), step);
  const auto p = hn::Add(now.p, change);
  return {hn::BitCast(du, m), hn::BitCast(du, v), hn::Sub(hn::BitCast(du, p), hn::Set(du, 1))};
}

// What a correction is where it is none: the old bits are an escape.
constexpr uint32_t kMomentEscape = 7;
constexpr uint32_t kMasterEscape = 3;

template <class D>
using MaskOf = hn::Mask<hn::RebindToUnsigned<D>>;

/// The correction or, where that does not fit, `mark`: then the old bits are appended, and behind
/// them there is room for a vector. Without a branch: momenta escape in every third vector, at
/// random.
template <class D>
HWY_INLINE BitsOf<D> escape(D, BitsOf<D> correction, uint32_t mark, BitsOf<D> old,
                            uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const auto marked = hn::Min(correction, hn::Set(du, mark));
  const MaskOf<D> leaves = hn::Eq(marked, hn::Set(du, mark));
  hn::StoreU(hn::Compress(old, leaves), du, escapes);
  escapes += hn::CountTrue(du, leaves);
  return marked;
}

/// The corrections that lead from `inverse` to `old`. Which bits a NaN has is not the same
/// everywhere: where the parameter has become one, and it has where any of the old values was one,
/// all escape. A NaN that only the inverse makes is quiet, so no number is within a correction of
/// it.
template <class D>
HWY_INLINE Bits<D> correct(D d, const Bits<D>& old, const Bits<D>& inverse, hn::Vec<D> parameter,
                           uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const auto all = hn::Set(du, UINT32_MAX);
  uint32_t* const first = escapes;
  auto m = hn::Sub(old.m, inverse.m), v = hn::Sub(old.v, inverse.v), p = hn::Sub(old.p, inverse.p);
  const auto marked = escape(d, m, kMomentEscape, old.m, escapes);
  const MaskOf<D> is_nan = hn::RebindMask(du, hn::IsNaN(parameter));
  const MaskOf<D> fits =
      hn::And(hn::Lt(v, hn::Set(du, kMomentEscape)), hn::Lt(p, hn::Set(du, kMasterEscape)));
  if (HWY_LIKELY(hn::AllTrue(du, hn::AndNot(is_nan, fits)))) return {marked, v, p};
  escapes = first;
  m = escape(d, hn::IfThenElse(is_nan, all, m), kMomentEscape, old.m, escapes);
  v = escape(d, hn::IfThenElse(is_nan, all, v), kMomentEscape, old.v, escapes);
  p = escape(d, hn::IfThenElse(is_nan, all, p), kMasterEscape, old.p, escapes);
  return {m, v, p};
}

/// `about`, with the next of the words in every lane that is escaped.
template <class D>
HWY_INLINE BitsOf<D> expand(D, BitsOf<D> about, MaskOf<D> escaped, const uint32_t* words) {
  const hn::RebindToUnsigned<D> du;
  // The library has no such operation. Better targets have smaller numbers.
#if HWY_TARGET <= HWY_AVX3
  return BitsOf<D>{_mm512_mask_expand_epi32(about.raw, escaped.raw, hn::LoadU(du, words).raw)};
#else
  if (HWY_LIKELY(hn::AllFalse(du, escaped))) return about;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(du, escaped, bits);
  HWY_ALIGN uint32_t all[hn::MaxLanes(du)];
  hn::Store(about, du, all);
  for (uint32_t lanes = bits[0]; lanes != 0; lanes &= lanes - 1) {
    all[std::countr_zero(lanes)] = *words++;
  }
  return hn::Load(du, all);
#endif
}

/// `about` where there is no escape, else the escape.
template <class D>
HWY_INLINE BitsOf<D> replace(D d, BitsOf<D> about, MaskOf<D> escaped, EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN uint32_t spare[hn::MaxLanes(du)];
  const uint32_t* const words = escapes.peek(hn::Lanes(du), spare);
  escapes.skip(hn::CountTrue(du, escaped));
  return expand(d, about, escaped, words);
}

/// The old bits. Without a branch for momenta, as in escape().
template <class D>
HWY_INLINE Bits<D> corrected(D d, const Bits<D>& inverse, const Bits<D>& corrections,
                             EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  const Bits<D> old{hn::Add(inverse.m, corrections.m), hn::Add(inverse.v, corrections.v),
                    hn::Add(inverse.p, corrections.p)};
  const auto moment = hn::Set(du, kMomentEscape), master = hn::Set(du, kMasterEscape);
  const auto m = replace(d, old.m, hn::Eq(corrections.m, moment), escapes);
  const MaskOf<D> v = hn::Eq(corrections.v, moment), p = hn::Eq(corrections.p, master);
  if (HWY_LIKELY(hn::AllFalse(du, hn::Or(v, p)))) return {m, old.v, old.p};
  return {m, replace(d, old.v, v, escapes), replace(d, old.p, p, escapes)};
}

/// Corrections of four vectors, a byte each in the word of a lane (undo_log.h), the first in the
/// uppermost.
template <class D>
struct PackedCorrections {
  BitsOf<D> words;

  HWY_INLINE void append(D, const Bits<D>& of) {
    words = hn::Or(hn::Or3(hn::ShiftLeft<8>(words), of.m, hn::ShiftLeft<3>(of.v)),
                   hn::ShiftLeft<6>(of.p));
  }
  HWY_INLINE Bits<D> take_first(D) {
    const auto moment = hn::Set(hn::RebindToUnsigned<D>(), kMomentEscape);
    const Bits<D> first{hn::And(hn::ShiftRight<24>(words), moment),
                        hn::And(hn::ShiftRight<27>(words), moment), hn::ShiftRight<30>(words)};
    words = hn::ShiftLeft<8>(words);
    return first;
  }
};

// Masters of any bits, NaNs too: where store_master() would make a NaN quiet.

template <class D>
HWY_INLINE void store_master_bits(D, BitsOf<D> master, float* weight, int16_t*) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(master, du, reinterpret_cast<uint32_t*>(weight));
}

template <class D>
HWY_INLINE void store_master_bits(D, BitsOf<D> master, BF16* weight, int16_t* low) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto high = hn::ShiftRight<16>(hn::Add(master, hn::Set(du, 0x8000u)));
  hn::StoreU(hn::TruncateTo(du16, high), du16, &weight->bits);
  hn::StoreU(hn::TruncateTo(du16, master), du16, reinterpret_cast<uint16_t*>(low));
}

template <class D>
HWY_INLINE void store_master_bits(D d, BitsOf<D> master, F16* weight, float* at) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(master, du, reinterpret_cast<uint32_t*>(at));
  store_f16(d, hn::BitCast(d, master), weight);
}

template <class D, class W, class G>
HWY_INLINE void store_bits(D d, const Bits<D>& bits, const View<W, G>& at, int64_t i) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(bits.m, du, reinterpret_cast<uint32_t*>(at.momentum + i));
  hn::StoreU(bits.v, du, reinterpret_cast<uint32_t*>(at.variance + i));
  store_master_bits(d, bits.p, at.weight + i, std::is_same_v<W, float> ? nullptr : at.rest + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
