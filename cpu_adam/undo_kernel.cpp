#include "cpu_adam/undo_kernel.h"

#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/undo_kernel.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu_adam/undo-inl.h"
#include "device/update_sizes.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// A group is kUndoElements elements. A group computes first its moments, then its masters: the
// corrections of moments do not need the square root and the quotient, so less code waits for
// these. Both parts prefetch their own planes of the group at `next`, also beyond the end of the
// task, where mostly another task begins.

// Each function processes four vectors, whose corrections share their words.

template <class D, class W, class G>
HWY_INLINE BitsOf<D> update_moments(D d, const AdamWView<W, G>& at, int64_t i,
                                    const AdamWCoefficients& c, const Inverse& inverse,
                                    float* steps, uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  BitsOf<D> m[4], v[4], old_v[4];
  for (int64_t k = 0; k < 4; ++k, i += lanes) {
    const Shares<D> add = shares_of(d, load_float(d, at.gradient + i), c);
    const Moments<D> old = load_moments(d, at, i);
    const Moments<D> now = moments_after(d, old, add, c);
    hn::Store(step_of(d, now, c), d, steps + k * lanes);
    store_moments(d, now, at, i);
    const auto old_m = hn::BitCast(du, old.m);
    m[k] = hn::Sub(old_m, invert_moment(d, now.m, add.momentum, inverse.of_beta1));
    m[k] = outlier(d, m[k], kMomentOutlier, old_m, outliers);
    old_v[k] = hn::BitCast(du, old.v);
    v[k] = hn::Sub(old_v[k], invert_moment(d, now.v, add.variance, inverse.of_beta2));
  }
  correct_variances(d, old_v, v, outliers);
  auto words = hn::Zero(du);
  for (int k = 0; k < 4; ++k) {
    words = hn::Or3(hn::ShiftLeft<8>(words), m[k], hn::ShiftLeft<3>(v[k]));
  }
  return words;
}

template <class D, class W, class G>
HWY_INLINE BitsOf<D> update_masters(D d, const AdamWView<W, G>& at, int64_t i,
                                    const AdamWCoefficients& c, const Inverse& inverse,
                                    const float* steps, BitsOf<D> words, uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  BitsOf<D> old[4], about[4];
  hn::Vec<D> now[4];
  for (int64_t k = 0; k < 4; ++k) {
    const auto step = hn::Load(d, steps + k * lanes);
    const auto master = load_master(d, at, i + k * lanes);
    now[k] = parameter_after(d, master, step, c);
    old[k] = hn::BitCast(du, master);
    about[k] = invert_master(d, now[k], step, inverse);
  }
  store_masters(d, now[0], now[1], at, i);
  store_masters(d, now[2], now[3], at, i + 2 * lanes);
  return correct_masters(d, old, about, now, words, outliers);
}

// The log is read much later or never, so it is written past the caches.
template <class W, class G>
HWY_INLINE void update_group(const AdamWView<W, G>& at, int64_t i, int64_t next,
                             const AdamWCoefficients& c, const Inverse& inverse, uint8_t* log,
                             uint32_t*& outliers) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float steps[kUndoElements];
  HWY_ALIGN uint32_t of_moments[kUndoElements / 4];
  for (int64_t j = 0; j < kUndoElements; j += kUnroll) prefetch_moments(at, next + j);
  for (int64_t j = 0; j < kUndoElements; j += 4 * lanes) {
    const auto words = update_moments(d, at, i + j, c, inverse, steps + j, outliers);
    hn::Store(words, du, of_moments + j / 4);
  }
  for (int64_t j = 0; j < kUndoElements; j += kUnroll) prefetch_masters(at, next + j);
  for (int64_t j = 0; j < kUndoElements; j += 4 * lanes) {
    const auto words = update_masters(d, at, i + j, c, inverse, steps + j,
                                      hn::Load(du, of_moments + j / 4), outliers);
    hn::Stream(words, du, reinterpret_cast<uint32_t*>(log + j));
  }
}

template <class D, class W, class G>
HWY_INLINE void undo_moments(D d, const AdamWView<W, G>& at, int64_t i, const AdamWCoefficients& c,
                             const Inverse& inverse, const AdamWCoefficients* instead,
                             BitsOf<D> words, float* steps, float* other_steps,
                             const uint32_t*& outliers) {
  const hn::RebindToUnsigned<D> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto moment = hn::Set(du, kMomentOutlier);
  hn::Vec<D> gradient[4];
  BitsOf<D> m[4], v[4], correction[4];
  for (int64_t k = 0; k < 4; ++k) {
    gradient[k] = load_float(d, at.gradient + i + k * lanes);
    const Shares<D> added = shares_of(d, gradient[k], c);
    const Moments<D> now = load_moments(d, at, i + k * lanes);
    hn::Store(step_of(d, now, c), d, steps + k * lanes);
    correction[k] = hn::ShiftRight<24>(words);
    words = hn::ShiftLeft<8>(words);
    m[k] = corrected(d, invert_moment(d, now.m, added.momentum, inverse.of_beta1),
                     hn::And(correction[k], moment), kMomentOutlier, outliers);
    v[k] = invert_moment(d, now.v, added.variance, inverse.of_beta2);
  }
  for (int64_t k = 0; k < 4; ++k) {
    v[k] = corrected(d, v[k], hn::And(hn::ShiftRight<3>(correction[k]), moment), kMomentOutlier,
                     outliers);
    Moments<D> moments{hn::BitCast(d, m[k]), hn::BitCast(d, v[k])};
    if (instead) {
      moments = moments_after(d, moments, shares_of(d, gradient[k], *instead), *instead);
      hn::Store(step_of(d, moments, *instead), d, other_steps + k * lanes);
    }
    store_moments(d, moments, at, i + k * lanes);
  }
}

template <class D, class W, class G>
HWY_INLINE void undo_masters(D d, const AdamWView<W, G>& at, int64_t i, const Inverse& inverse,
                             const AdamWCoefficients* instead, BitsOf<D> corrections,
                             const float* step, const float* other_step,
                             const uint32_t*& outliers) {
  const auto about = invert_master(d, load_master(d, at, i), hn::Load(d, step), inverse);
  const auto old = corrected(d, about, corrections, kMasterOutlier, outliers);
  if (!instead) return store_master_bits(d, old, at, i);
  const auto other = hn::Load(d, other_step);
  store_master(d, parameter_after(d, hn::BitCast(d, old), other, *instead), at, i);
}

template <class W, class G>
HWY_INLINE void undo_group(const AdamWView<W, G>& at, int64_t i, int64_t next,
                           const AdamWCoefficients& c, const Inverse& inverse,
                           const AdamWCoefficients* instead, const uint8_t* log,
                           const uint32_t*& outliers) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float steps[kUndoElements], other_steps[kUndoElements];
  for (int64_t j = 0; j < kUndoElements; j += kUnroll) prefetch_moments(at, next + j);
  for (int64_t j = 0; j < kUndoElements; j += 4 * lanes) {
    const auto words = hn::Load(du, reinterpret_cast<const uint32_t*>(log + j));
    undo_moments(d, at, i + j, c, inverse, instead, words, steps + j, other_steps + j, outliers);
  }
  for (int64_t j = 0; j < kUndoElements; j += kUnroll) prefetch_masters(at, next + j);
  for (int64_t j = 0; j < kUndoElements; j += 4 * lanes) {
    auto words = hn::Load(du, reinterpret_cast<const uint32_t*>(log + j));
    for (int64_t k = j; k < j + 4 * lanes; k += lanes) {
      undo_masters(d, at, i + k, inverse, instead, hn::ShiftRight<30>(words), steps + k,
                   other_steps + k, outliers);
      words = hn::ShiftLeft<8>(words);
    }
  }
}

/// A copy of fewer elements than a group, filled up with zeros to a whole group.
template <class W, class G>
struct PartOfGroup {
  W weight[kUndoElements] = {};
  Remainder<W> remainder[kUndoElements] = {};
  float momentum[kUndoElements] = {};
  float variance[kUndoElements] = {};
  G gradient[kUndoElements] = {};

  PartOfGroup(const AdamWView<W, G>& from, int64_t count) {
    std::copy_n(from.gradient, count, gradient);
    copy(from, view(), count);
  }
  void put_back(const AdamWView<W, G>& to, int64_t count) { copy(view(), to, count); }
  AdamWView<W, G> view() {
    return {weight, std::is_same_v<W, float> ? nullptr : remainder, momentum, variance, gradient};
  }

 private:
  static void copy(const AdamWView<W, G>& from, const AdamWView<W, G>& to, int64_t count) {
    std::copy_n(from.weight, count, to.weight);
    if (from.remainder) std::copy_n(from.remainder, count, to.remainder);
    std::copy_n(from.momentum, count, to.momentum);
    std::copy_n(from.variance, count, to.variance);
  }
};

// Process the groups of [0, end). Not inlined: a group is much code, which is compiled for every
// type and instruction set, and the partial group at the end uses the same code.

template <class W, class G>
HWY_NOINLINE void undo_groups(AdamWView<W, G> at, int64_t end, AdamWCoefficients c, Inverse inverse,
                              const AdamWCoefficients* instead, const uint8_t* log,
                              OutlierReader& outliers) {
  const int64_t ahead = prefetch_distance();
  for (int64_t i = 0; i + kUndoElements <= end; i += kUndoElements) {
    hwy::Prefetch(log + i + ahead);
    const uint32_t* of_group = outliers.begin_group();
    undo_group(at, i, i + ahead, c, inverse, instead, log + i, of_group);
    outliers.end_group(of_group);
  }
}

/// Updates with a log until the outliers do not fit any more. Returns the end of the updated
/// elements.
template <class W, class G>
HWY_NOINLINE int64_t update_groups(AdamWView<W, G> at, int64_t end, AdamWCoefficients c,
                                   Inverse inverse, uint8_t* log, OutlierWriter& outliers) {
  const int64_t ahead = prefetch_distance();
  int64_t i = 0;
  for (; i + kUndoElements <= end; i += kUndoElements) {
    uint32_t* of_group = outliers.begin_group();
    if (HWY_UNLIKELY(!of_group)) break;
    update_group(at, i, i + ahead, c, inverse, log + i, of_group);
    outliers.end_group(of_group);
  }
  return i;
}

template <class W, class G>
int64_t update_with_log(const AdamWView<W, G>& at, int64_t n, const AdamWCoefficients& c,
                        uint8_t* log, OutlierWriter& outliers) {
  const Inverse inverse(c);
  const int64_t whole = n / kUndoElements * kUndoElements;
  int64_t done = update_groups(at, whole, c, inverse, log, outliers);
  if (done == whole && whole < n) {
    PartOfGroup<W, G> part(from(at, whole), n - whole);
    if (update_groups(part.view(), kUndoElements, c, inverse, log + whole, outliers) != 0) {
      part.put_back(from(at, whole), n - whole);
      done = n;
    }
  }
  hwy::FlushStream();
  return done;
}

template <class W, class G>
void undo(const AdamWView<W, G>& at, int64_t n, const AdamWCoefficients& c,
          const AdamWCoefficients* instead, const uint8_t* log, OutlierReader& outliers) {
  const Inverse inverse(c);
  const int64_t whole = n / kUndoElements * kUndoElements;
  undo_groups(at, whole, c, inverse, instead, log, outliers);
  if (whole == n) return;
  PartOfGroup<W, G> part(from(at, whole), n - whole);
  undo_groups(part.view(), kUndoElements, c, inverse, instead, log + whole, outliers);
  part.put_back(from(at, whole), n - whole);
}

int64_t update_range(const Planes& planes, int64_t n, const AdamWCoefficients& c, uint8_t* log,
                     OutlierWriter& outliers) {
  return with_adamw_view(planes,
                         [&](const auto& at) { return update_with_log(at, n, c, log, outliers); });
}

void undo_all(const Planes& planes, int64_t n, const AdamWCoefficients& c,
              const AdamWCoefficients* instead, const uint8_t* log, OutlierReader& outliers) {
  with_adamw_view(planes, [&](const auto& at) { undo(at, n, c, instead, log, outliers); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(update_range);
HWY_EXPORT(undo_all);

int64_t update_range_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                              uint8_t* log, OutlierWriter& outliers) {
  return HWY_DYNAMIC_DISPATCH(update_range)(planes, n, c, log, outliers);
}

void undo_range(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                const AdamWCoefficients* instead, const uint8_t* log, OutlierReader& outliers) {
  HWY_DYNAMIC_DISPATCH(undo_all)(planes, n, c, instead, log, outliers);
}

}  // namespace ebb
#endif
