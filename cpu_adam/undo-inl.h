// The inverse of an update in vectors, and the packing of corrections. Compiled once for each
// instruction set: include this file only in a foreach_target source.
#if defined(EBB_CPU_ADAM_UNDO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_UNDO_INL_H_
#undef EBB_CPU_ADAM_UNDO_INL_H_
#else
#define EBB_CPU_ADAM_UNDO_INL_H_
#endif

#include <bit>

#include "cpu_adam/adamw-inl.h"
#include "cpu_adam/undo_log.h"
#include "device/update_sizes.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

/// The corrections of four vectors share their words, so the elements of a group divide by four
/// vectors.
using FloatTag = hn::CappedTag<float, kUndoElements / 4>;
template <class D>
using BitsOf = hn::Vec<hn::RebindToUnsigned<D>>;

/// The coefficients of the inverse: x + k x divides x by a factor.
struct Inverse {
  explicit Inverse(const AdamWCoefficients& c)
      : of_beta1(below(c.beta1)),
        of_beta2(below(c.beta2)),
        of_decay(static_cast<float>(1 / (1 - double{c.decay_rate}) - 1)) {}
  float of_beta1, of_beta2, of_decay;

 private:
  /// Makes inverted moments 2 to 4 units in the last place too small, so that corrections are near
  /// the middle of 0 .. 6.
  static float below(double factor) { return static_cast<float>((1 - 2 * 0x1p-23) / factor - 1); }
};

/// Approximates the bits of the old moment, given the new moment `now` and the term `share` that
/// the update added. The result is a little too small. A NaN results in the same NaN each time:
/// `now` is a sum, so it is quiet, and a difference takes the NaN of its first operand.
template <class D>
HWY_INLINE BitsOf<D> invert_moment(D d, hn::Vec<D> now, hn::Vec<D> share, float of_beta) {
  const hn::RebindToUnsigned<D> du;
  const auto decayed = hn::Sub(now, share);
  return hn::BitCast(du, hn::MulAdd(decayed, hn::Set(d, of_beta), decayed));
}

/// Approximates the bits of the old master, minus 1, so that corrections of -1 .. 1 become 0 .. 2.
/// `now`: the new master; `step`: the part of its change that comes from the moments.
template <class D>
HWY_INLINE BitsOf<D> invert_master(D d, hn::Vec<D> now, hn::Vec<D> step, const Inverse& inverse) {
  const hn::RebindToUnsigned<D> du;
  // The change is small compared to the parameter. It is added up first, so it is rounded less.
  const auto change = hn::MulAdd(hn::Add(now, step), hn::Set(d, inverse.of_decay), step);
  return hn::Sub(hn::BitCast(du, hn::Add(now, change)), hn::Set(du, 1));
}

// These values mark an outlier instead of a correction.
constexpr uint32_t kMomentOutlier = 7;
constexpr uint32_t kMasterOutlier = 3;

template <class D>
using MaskOf = hn::Mask<hn::RebindToUnsigned<D>>;

/// Returns the corrections. Where a correction does not fit, returns `mark` and appends the old
/// bits to the outliers. There is no branch, because every third vector of momenta has an outlier,
/// at random. REQUIRES: room for a whole vector of outliers.
template <class D>
HWY_INLINE BitsOf<D> outlier(D, BitsOf<D> correction, uint32_t mark, BitsOf<D> old,
                             uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const auto marked = hn::Min(correction, hn::Set(du, mark));
  const MaskOf<D> leaves = hn::Eq(marked, hn::Set(du, mark));
  const auto leaving = hn::Compress(old, leaves);
  const size_t count = hn::CountTrue(du, leaves);
  uint32_t* const at = outliers;
  outliers += count;
  if constexpr (hn::MaxLanes(D()) == 16) {
    // A vector mostly has few outliers, and a store of 16 elements would nearly always cross a
    // cache line.
    hn::StoreU(hn::LowerHalf(hn::LowerHalf(leaving)), hn::Full128<uint32_t>(), at);
    if (HWY_LIKELY(count <= 4)) return marked;
  }
  hn::StoreU(leaving, du, at);
  return marked;
}

// A correction is the difference between the old bits and the inverse (`about`).

/// Marks the outliers of four vectors of variances. Mostly all corrections fit.
template <class D>
HWY_INLINE void correct_variances(D, const BitsOf<D> (&old)[4], BitsOf<D> (&v)[4],
                                  uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const auto fits = [&](int k) HWY_ATTR { return hn::Lt(v[k], hn::Set(du, kMomentOutlier)); };
  const MaskOf<D> all_fit = hn::And(hn::And(fits(0), fits(1)), hn::And(fits(2), fits(3)));
  if (HWY_LIKELY(hn::AllTrue(du, all_fit))) return;
  for (int k = 0; k < 4; ++k) v[k] = outlier(D(), v[k], kMomentOutlier, old[k], outliers);
}

/// Adds the corrections of four vectors of masters to `words`, each to the upper two bits of a
/// byte. If a new master is a NaN, the old master is an outlier: a sum of two NaNs may have the
/// bits of either, and bf16 keeps no lower half of a NaN.
template <class D>
HWY_INLINE BitsOf<D> correct_masters(D d, const BitsOf<D> (&old)[4], const BitsOf<D> (&about)[4],
                                     const hn::Vec<D> (&now)[4], BitsOf<D> words,
                                     uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  BitsOf<D> p[4];
  const auto is_nan = [&](int k) HWY_ATTR { return hn::RebindMask(du, hn::IsNaN(now[k])); };
  const auto fits = [&](int k) HWY_ATTR {
    return hn::AndNot(is_nan(k), hn::Lt(p[k], hn::Set(du, kMasterOutlier)));
  };
  for (int k = 0; k < 4; ++k) p[k] = hn::Sub(old[k], about[k]);
  const MaskOf<D> all_fit = hn::And(hn::And(fits(0), fits(1)), hn::And(fits(2), fits(3)));
  if (HWY_UNLIKELY(!hn::AllTrue(du, all_fit))) {
    for (int k = 0; k < 4; ++k) {
      const auto marked = hn::IfThenElse(is_nan(k), hn::Set(du, UINT32_MAX), p[k]);
      p[k] = outlier(d, marked, kMasterOutlier, old[k], outliers);
    }
  }
  return hn::Or3(hn::Or3(words, hn::ShiftLeft<30>(p[0]), hn::ShiftLeft<22>(p[1])),
                 hn::ShiftLeft<14>(p[2]), hn::ShiftLeft<6>(p[3]));
}

/// Returns `about` with the next of `words` in each vector element that is an outlier.
template <class D>
HWY_INLINE BitsOf<D> expand(D, BitsOf<D> about, MaskOf<D> is_outlier, const uint32_t* words) {
  const hn::RebindToUnsigned<D> du;
  // Highway has no such operation. Wider instruction sets have smaller numbers.
#if HWY_TARGET <= HWY_AVX3
  return BitsOf<D>{_mm512_mask_expand_epi32(about.raw, is_outlier.raw, hn::LoadU(du, words).raw)};
#else
  if (HWY_LIKELY(hn::AllFalse(du, is_outlier))) return about;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(du, is_outlier, bits);
  HWY_ALIGN uint32_t all[hn::MaxLanes(du)];
  hn::Store(about, du, all);
  for (uint32_t lanes = bits[0]; lanes != 0; lanes &= lanes - 1) {
    all[std::countr_zero(lanes)] = *words++;
  }
  return hn::Load(du, all);
#endif
}

/// Returns the old bits: `about` plus the correction or, if the correction is `mark`, the next
/// outlier.
template <class D>
HWY_INLINE BitsOf<D> corrected(D d, BitsOf<D> about, BitsOf<D> correction, uint32_t mark,
                               const uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const MaskOf<D> is_outlier = hn::Eq(correction, hn::Set(du, mark));
  const auto old = expand(d, hn::Add(about, correction), is_outlier, outliers);
  outliers += hn::CountTrue(du, is_outlier);
  return old;
}

// Store masters with any bits. store_master() would make a NaN quiet.

template <class D>
HWY_INLINE void store_master_bits(D, BitsOf<D> master, float* weight, int16_t*) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(master, du, reinterpret_cast<uint32_t*>(weight));
}

template <class D>
HWY_INLINE void store_master_bits(D d, BitsOf<D> master, F16* weight, float* at) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(master, du, reinterpret_cast<uint32_t*>(at));
  store_f16(d, hn::BitCast(d, master), weight);
}

template <class D, class W, class G>
HWY_INLINE void store_master_bits(D d, BitsOf<D> master, const AdamWView<W, G>& at, int64_t i) {
  store_master_bits(d, master, at.weight + i, remainder_at(at, i));
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
