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

// A turn's corrections are three rows (undo_log.h).
constexpr int64_t kHalfTurn = kTurn / 2;

/// Lanes divide half a turn.
using FloatTag = hn::CappedTag<float, kHalfTurn>;
template <class D>
using BitsOf = hn::Vec<hn::RebindToUnsigned<D>>;

struct Inverse {
  explicit Inverse(const AdamWCoefficients& c)
      : of_beta1(static_cast<float>(1 / double{c.beta1})),
        of_beta2(static_cast<float>(1 / double{c.beta2})),
        of_decay(static_cast<float>(1 / (1 - double{c.decay_rate}))) {}
  float of_beta1, of_beta2, of_decay;
};

/// Bits of the values of some elements.
template <class D>
struct Bits {
  BitsOf<D> m, v, p;
};

/// Which bits a NaN has is not the same everywhere: here, it has none.
template <class D>
HWY_INLINE BitsOf<D> bits_unless_nan(D, hn::Vec<D> x) {
  return hn::BitCast(hn::RebindToUnsigned<D>(), hn::IfThenZeroElse(hn::IsNaN(x), x));
}

/// About the values before an update that made `now` by way of `step`.
template <class D>
HWY_INLINE Bits<D> invert(D d, const Values<D>& now, const Shares<D>& added, hn::Vec<D> step,
                          const Inverse& inverse) {
  const auto m = hn::Mul(hn::Sub(now.m, added.momentum), hn::Set(d, inverse.of_beta1));
  const auto v = hn::Mul(hn::Sub(now.v, added.variance), hn::Set(d, inverse.of_beta2));
  const auto p = hn::Mul(hn::Add(now.p, step), hn::Set(d, inverse.of_decay));
  return {bits_unless_nan(d, m), bits_unless_nan(d, v), bits_unless_nan(d, p)};
}

constexpr int kBits = 4;  // of a correction
constexpr uint32_t kLargest = (1u << (kBits - 1)) - 1;
/// Stands for an escape, in its lowest bits.
constexpr uint32_t kEscape = ~kLargest;

template <class D>
using MaskOf = hn::Mask<hn::RebindToUnsigned<D>>;

/// One bit a lane.
template <class D>
HWY_INLINE uint32_t lanes_in(D, MaskOf<D> mask) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(hn::RebindToUnsigned<D>(), mask, bits);
  return bits[0] | uint32_t{bits[1]} << 8;
}

/// Does a correction have a number of its own?
template <class D>
HWY_INLINE MaskOf<D> fits(D, BitsOf<D> correction) {
  const hn::RebindToUnsigned<D> du;
  return hn::Lt(hn::Add(correction, hn::Set(du, kLargest)), hn::Set(du, 2 * kLargest + 1));
}

/// Where a correction does not fit it becomes kEscape, and the old bits are appended; behind them
/// there is room for a vector. Without a branch: momenta escape in every sixth vector, at random.
template <class D>
HWY_INLINE BitsOf<D> escape(D d, BitsOf<D> correction, BitsOf<D> old, uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const MaskOf<D> stays = fits(d, correction);
  const MaskOf<D> leaves = hn::Not(stays);
  hn::StoreU(hn::Compress(old, leaves), du, escapes);
  escapes += hn::CountTrue(du, leaves);
  return hn::IfThenElse(stays, correction, hn::Set(du, kEscape));
}

/// The corrections that lead from `inverse` to `old`.
template <class D>
HWY_INLINE Bits<D> correct(D d, const Bits<D>& old, const Bits<D>& inverse, uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const auto m = escape(d, hn::Sub(old.m, inverse.m), old.m, escapes);
  const auto v = hn::Sub(old.v, inverse.v), p = hn::Sub(old.p, inverse.p);
  if (HWY_LIKELY(hn::AllTrue(du, hn::And(fits(d, v), fits(d, p))))) return {m, v, p};
  // In braces calls have an order: that of the escapes.
  return {m, escape(d, v, old.v, escapes), escape(d, p, old.p, escapes)};
}

/// `about` where there is no escape, else the escape.
template <class D>
HWY_INLINE BitsOf<D> replace(D d, BitsOf<D> about, MaskOf<D> escaped, EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN uint32_t words[kHalfTurn];
  hn::Store(about, du, words);
  for (uint32_t lanes = lanes_in(d, escaped); lanes != 0; lanes &= lanes - 1) {
    words[std::countr_zero(lanes)] = escapes.next();
  }
  return hn::Load(du, words);
}

/// The old bits. Corrections are in the highest bits.
template <class D>
HWY_INLINE Bits<D> corrected(D d, const Bits<D>& inverse, const Bits<D>& corrections,
                             EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto add = [&](BitsOf<D> to, BitsOf<D> correction) HWY_ATTR {
    return hn::Add(to, hn::BitCast(du, hn::ShiftRight<32 - kBits>(hn::BitCast(di, correction))));
  };
  const Bits<D> old{add(inverse.m, corrections.m), add(inverse.v, corrections.v),
                    add(inverse.p, corrections.p)};
  const auto mark = hn::Set(du, 0x80000000u);  // kEscape in the highest bits
  const MaskOf<D> m = hn::Eq(corrections.m, mark), v = hn::Eq(corrections.v, mark),
                  p = hn::Eq(corrections.p, mark);
  if (HWY_LIKELY(hn::AllFalse(du, hn::Or(hn::Or(m, v), p)))) return old;
  return {replace(d, old.m, m, escapes), replace(d, old.v, v, escapes),
          replace(d, old.p, p, escapes)};
}

/// Corrections of elements j.. and j + 16.. of a turn, in their row.
template <class D>
HWY_INLINE void pack(D, BitsOf<D> first, BitsOf<D> second, uint8_t* row, int64_t j) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto low = hn::And(first, hn::Set(du, 15));
  hn::StoreU(hn::TruncateTo(du8, hn::Or(low, hn::ShiftLeft<4>(second))), du8, row + j);
}

/// Of elements j.. or, `second`, of those 16 further on: in the highest bits.
template <class D>
HWY_INLINE BitsOf<D> unpack(D, const uint8_t* row, int64_t j, bool second) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto both = hn::PromoteTo(du, hn::LoadU(du8, row + j));
  const auto highest = hn::And(hn::ShiftLeft<24>(both), hn::Set(du, 0xf0000000u));
  return second ? highest : hn::ShiftLeft<28>(both);
}

// Masters of any bits, NaNs too: where store_master() would make a NaN quiet.

template <class D>
HWY_INLINE void store_master_bits(D, BitsOf<D> master, float* weight, int16_t*) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(master, du, reinterpret_cast<uint32_t*>(weight));
}

template <class D>
HWY_INLINE void store_master_bits(D, BitsOf<D> master, BF16* weight, int16_t* low) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int16_t, D> di16;
  const auto high = hn::ShiftRight<16>(hn::Add(master, hn::Set(du, 0x8000u)));
  const auto remainder = hn::Sub(master, hn::ShiftLeft<16>(high));
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, high)), du16, &weight->bits);
  hn::StoreU(hn::DemoteTo(di16, hn::BitCast(di, remainder)), di16, low);
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
