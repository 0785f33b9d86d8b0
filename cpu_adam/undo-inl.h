// The inverse of an update in vectors, and how corrections are packed, compiled once for each
// instruction set: include inside a foreach_target source only.
#if defined(EBB_CPU_ADAM_UNDO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_UNDO_INL_H_
#undef EBB_CPU_ADAM_UNDO_INL_H_
#else
#define EBB_CPU_ADAM_UNDO_INL_H_
#endif

#include <algorithm>
#include <array>
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

// A correction is kept as a nibble: itself plus kLargest, or kEscape where that is no nibble.
constexpr uint32_t kLargest = 7;
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

/// What leads from `inverse` to `old`, plus kLargest: its nibble, if it is less than kEscape.
template <class D>
HWY_INLINE BitsOf<D> lifted(D, BitsOf<D> old, BitsOf<D> inverse) {
  const hn::RebindToUnsigned<D> du;
  return hn::Add(hn::Sub(old, inverse), hn::Set(du, kLargest));
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
  auto m = lifted(d, old.m, inverse.m), v = lifted(d, old.v, inverse.v),
       p = lifted(d, old.p, inverse.p);
  const auto m_nibble = escape(d, m, old.m, escapes);
  const MaskOf<D> is_number = hn::RebindMask(du, hn::Eq(parameter, parameter));
  const MaskOf<D> fits = hn::Lt(hn::Max(v, p), all);
  if (HWY_LIKELY(hn::AllTrue(du, hn::And(fits, is_number)))) return {m_nibble, v, p};
  escapes = first;
  m = escape(d, hn::IfThenElse(is_number, m, all), old.m, escapes);
  v = escape(d, hn::IfThenElse(is_number, v, all), old.v, escapes);
  p = escape(d, hn::IfThenElse(is_number, p, all), old.p, escapes);
  return {m, v, p};
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

/// `inverse` corrected by what a nibble says.
template <class D>
HWY_INLINE BitsOf<D> add_nibble(D, BitsOf<D> inverse, BitsOf<D> nibble) {
  return hn::Sub(hn::Add(inverse, nibble), hn::Set(hn::RebindToUnsigned<D>(), kLargest));
}

/// The old bits.
template <class D>
HWY_INLINE Bits<D> corrected(D d, const Bits<D>& inverse, const Bits<D>& nibbles,
                             EscapeReader& escapes) {
  const hn::RebindToUnsigned<D> du;
  const Bits<D> old{add_nibble(d, inverse.m, nibbles.m), add_nibble(d, inverse.v, nibbles.v),
                    add_nibble(d, inverse.p, nibbles.p)};
  const auto mark = hn::Set(du, kEscape);
  const MaskOf<D> m = hn::Eq(nibbles.m, mark), v = hn::Eq(nibbles.v, mark),
                  p = hn::Eq(nibbles.p, mark);
  if (HWY_LIKELY(hn::AllFalse(du, hn::Or(hn::Or(m, v), p)))) return old;
  return {replace(d, old.m, m, escapes), replace(d, old.v, v, escapes),
          replace(d, old.p, p, escapes)};
}

/// Bytes 0, 1 and 2 of each lane to bytes j.. of three rows.
template <class D>
HWY_INLINE void store_rows(D, BitsOf<D> bytes, uint8_t* rows, int64_t j) {
  constexpr int64_t kRow = kCorrectionBytes / 3;
  const hn::RebindToUnsigned<D> du;
  constexpr size_t kLanes = hn::MaxLanes(du);
  HWY_ALIGN uint32_t apart[kLanes];
#if HWY_TARGET == HWY_SCALAR
  hn::Store(bytes, du, apart);
#else
  // Among 16 bytes, those of a row become a word; then the words of a row lie together.
  const hn::Repartition<uint8_t, decltype(du)> du8;
  HWY_ALIGN static constexpr uint8_t kBytes[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                   2, 6, 10, 14, 3, 7, 11, 15};
  const auto words =
      hn::BitCast(du, hn::TableLookupBytes(hn::BitCast(du8, bytes), hn::LoadDup128(du8, kBytes)));
  HWY_ALIGN static constexpr auto kWords = [] {
    std::array<uint32_t, kLanes> from{};
    for (uint32_t i = 0; i < kLanes; ++i) from[i] = i % (kLanes / 4) * 4 + i / (kLanes / 4);
    return from;
  }();
  hn::Store(hn::TableLookupLanes(words, hn::SetTableIndices(du, kWords.data())), du, apart);
#endif
  for (int64_t row = 0; row < 3; ++row) {
    const auto* const from =
        reinterpret_cast<const uint8_t*>(apart) + static_cast<size_t>(row) * kLanes;
    std::copy_n(from, kLanes, rows + row * kRow + j);
  }
}

/// Nibbles of m, v and p in bytes 0, 1 and 2.
template <class D>
HWY_INLINE BitsOf<D> in_bytes(D, const Bits<D>& nibbles) {
  return hn::Or3(nibbles.m, hn::ShiftLeft<8>(nibbles.v), hn::ShiftLeft<16>(nibbles.p));
}

/// Corrections of elements j.. and j + 16.. of a turn, in their rows.
template <class D>
HWY_INLINE void pack(D d, const Bits<D>& first, const Bits<D>& second, uint8_t* rows, int64_t j) {
  store_rows(d, hn::Or(in_bytes(d, first), hn::ShiftLeft<4>(in_bytes(d, second))), rows, j);
}

/// Of elements j.. or, `second`, of those 16 further on.
template <class D>
HWY_INLINE BitsOf<D> unpack(D, const uint8_t* row, int64_t j, bool second) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto both = hn::PromoteTo(du, hn::LoadU(du8, row + j));
  return second ? hn::ShiftRight<4>(both) : hn::And(both, hn::Set(du, kEscape));
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
