// The inverse of an update in vectors, and how corrections are packed, compiled once for each
// instruction set: include inside a foreach_target source only.
#if defined(EBB_CPU_ADAM_UNDO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_UNDO_INL_H_
#undef EBB_CPU_ADAM_UNDO_INL_H_
#else
#define EBB_CPU_ADAM_UNDO_INL_H_
#endif

#include <algorithm>
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

/// The magnitudes of an inverse come out smaller by 14/3 to 28/3 units in their last place, so that
/// corrections lie about the middle of 0 .. 14, by as much on either side.
struct Inverse {
  explicit Inverse(const AdamWCoefficients& c)
      : of_beta1(of(c.beta1)), of_beta2(of(c.beta2)), of_decay(of(1 - double{c.decay_rate})) {}
  float of_beta1, of_beta2, of_decay;

 private:
  static float of(double factor) { return static_cast<float>((1 - 14 / 3.0 * 0x1p-23) / factor); }
};

/// Bits of the values of some elements.
template <class D>
struct Bits {
  BitsOf<D> m, v, p;
};

/// About the values before an update that made `now` by way of `step`.
template <class D>
HWY_INLINE Bits<D> invert(D d, const Values<D>& now, const Shares<D>& added, hn::Vec<D> step,
                          const Inverse& inverse) {
  const auto m = hn::Mul(hn::Sub(now.m, added.momentum), hn::Set(d, inverse.of_beta1));
  const auto v = hn::Mul(hn::Sub(now.v, added.variance), hn::Set(d, inverse.of_beta2));
  const auto p = hn::Mul(hn::Add(now.p, step), hn::Set(d, inverse.of_decay));
  const hn::RebindToUnsigned<D> du;
  return {hn::BitCast(du, m), hn::BitCast(du, v), hn::BitCast(du, p)};
}

// A correction is kept as a nibble, or as kEscape where it is none.
constexpr uint32_t kEscape = 15;

template <class D>
using MaskOf = hn::Mask<hn::RebindToUnsigned<D>>;

/// One bit a lane.
template <class D>
HWY_INLINE uint32_t lanes_in(D, MaskOf<D> mask) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(hn::RebindToUnsigned<D>(), mask, bits);
  return bits[0] | uint32_t{bits[1]} << 8;
}

/// Its nibble; where that is kEscape the old bits are appended, and behind them there is room for a
/// vector. Without a branch: momenta escape in every sixth vector, at random.
template <class D>
HWY_INLINE BitsOf<D> escape(D, BitsOf<D> correction, BitsOf<D> old, uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const auto nibble = hn::Min(correction, hn::Set(du, kEscape));
  const MaskOf<D> leaves = hn::Eq(nibble, hn::Set(du, kEscape));
  hn::StoreU(hn::Compress(old, leaves), du, escapes);
  escapes += hn::CountTrue(du, leaves);
  return nibble;
}

/// The nibbles that lead from `inverse` to `old`. Which bits a NaN has is not the same everywhere:
/// where the parameter has become one, and it has where any of the old values was one, all escape.
/// A NaN that only the inverse makes is quiet, so no number is within a nibble of it.
template <class D>
HWY_INLINE Bits<D> correct(D d, const Bits<D>& old, const Bits<D>& inverse, hn::Vec<D> parameter,
                           uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const auto all = hn::Set(du, kEscape);
  uint32_t* const first = escapes;
  auto m = hn::Sub(old.m, inverse.m), v = hn::Sub(old.v, inverse.v), p = hn::Sub(old.p, inverse.p);
  const auto m_nibble = escape(d, m, old.m, escapes);
  const MaskOf<D> is_nan = hn::RebindMask(du, hn::IsNaN(parameter));
  const MaskOf<D> fits = hn::Lt(hn::Max(v, p), all);
  if (HWY_LIKELY(hn::AllTrue(du, hn::AndNot(is_nan, fits)))) return {m_nibble, v, p};
  escapes = first;
  m = escape(d, hn::IfThenElse(is_nan, all, m), old.m, escapes);
  v = escape(d, hn::IfThenElse(is_nan, all, v), old.v, escapes);
  p = escape(d, hn::IfThenElse(is_nan, all, p), old.p, escapes);
  return {m, v, p};
}

/// `about` where there is no escape, else the escape.
template <class D>
HWY_INLINE BitsOf<D> replace(D d, BitsOf<D> about, MaskOf<D> escaped, EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN uint32_t words[hn::MaxLanes(du)];
  hn::Store(about, du, words);
  for (uint32_t lanes = lanes_in(d, escaped); lanes != 0; lanes &= lanes - 1) {
    words[std::countr_zero(lanes)] = escapes.next();
  }
  return hn::Load(du, words);
}

/// The old bits.
template <class D>
HWY_INLINE Bits<D> corrected(D d, const Bits<D>& inverse, const Bits<D>& nibbles,
                             EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  const Bits<D> old{hn::Add(inverse.m, nibbles.m), hn::Add(inverse.v, nibbles.v),
                    hn::Add(inverse.p, nibbles.p)};
  const auto mark = hn::Set(du, kEscape);
  const MaskOf<D> m = hn::Eq(nibbles.m, mark), v = hn::Eq(nibbles.v, mark),
                  p = hn::Eq(nibbles.p, mark);
  if (HWY_LIKELY(hn::AllFalse(du, hn::Or(hn::Or(m, v), p)))) return old;
  return {replace(d, old.m, m, escapes), replace(d, old.v, v, escapes),
          replace(d, old.p, p, escapes)};
}

/// Nibbles of four vectors, a word and half a word a lane (undo_log.h), first to last from the
/// upper ends down.
template <class D>
struct PackedNibbles {
  BitsOf<D> moments, masters;

  HWY_INLINE void append(D, const Bits<D>& nibbles) {
    moments = hn::Or3(hn::ShiftLeft<4>(moments), nibbles.m, hn::ShiftLeft<16>(nibbles.v));
    masters = hn::Or(hn::ShiftLeft<4>(masters), nibbles.p);
  }
  HWY_INLINE Bits<D> take_first(D) {
    const auto mark = hn::Set(hn::RebindToUnsigned<D>(), kEscape);
    const Bits<D> first{hn::And(hn::ShiftRight<12>(moments), mark), hn::ShiftRight<28>(moments),
                        hn::And(hn::ShiftRight<12>(masters), mark)};
    moments = hn::ShiftLeft<4>(moments);
    masters = hn::ShiftLeft<4>(masters);
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
