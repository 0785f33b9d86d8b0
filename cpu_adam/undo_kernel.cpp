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
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

/// Elements i.. of the planes: updates them, returns their corrections.
template <class D, class W, class G>
HWY_INLINE Bits<D> update_and_correct(D d, const View<W, G>& at, int64_t i,
                                      const AdamWCoefficients& c, const Inverse& inverse,
                                      uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const Shares<D> add = shares_of(d, load_float(d, at.gradient + i), c);
  const Values<D> old = load_values(d, at, i);
  hn::Vec<D> step;
  const Values<D> now = advance(d, old, add, step, c);
  store_values(d, now, at, i);
  const Bits<D> bits{hn::BitCast(du, old.m), hn::BitCast(du, old.v), hn::BitCast(du, old.p)};
  return correct(d, bits, invert(d, now, add, step, inverse), now.p, escapes);
}

template <class W, class G>
HWY_INLINE void update_turn(const View<W, G>& at, int64_t i, const AdamWCoefficients& c,
                            const Inverse& inverse, uint8_t* log, uint32_t*& escapes) {
  const FloatTag d;
  for (int64_t j = 0; j < kHalfTurn; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto first = update_and_correct(d, at, i + j, c, inverse, escapes);
    const auto second = update_and_correct(d, at, i + kHalfTurn + j, c, inverse, escapes);
    pack(d, first, second, log, j);
  }
}

template <class D, class W, class G>
HWY_INLINE void undo_vector(D d, const View<W, G>& at, int64_t i, const AdamWCoefficients& c,
                            const Inverse& inverse, const AdamWCoefficients* instead,
                            const Bits<D>& corrections, EscapeReader& escapes) {
  const auto gradient = load_float(d, at.gradient + i);
  const Shares<D> added = shares_of(d, gradient, c);
  const Values<D> now = load_values(d, at, i);
  const Bits<D> about = invert(d, now, added, step_of(d, now.m, now.v, c), inverse);
  const Bits<D> old = corrected(d, about, corrections, escapes);
  if (!instead) return store_bits(d, old, at, i);
  const Values<D> before{hn::BitCast(d, old.m), hn::BitCast(d, old.v), hn::BitCast(d, old.p)};
  hn::Vec<D> step;
  store_values(d, advance(d, before, shares_of(d, gradient, *instead), step, *instead), at, i);
}

template <class W, class G>
HWY_INLINE void undo_turn(const View<W, G>& at, int64_t i, const AdamWCoefficients& c,
                          const Inverse& inverse, const AdamWCoefficients* instead,
                          const uint8_t* log, EscapeReader& escapes) {
  const FloatTag d;
  constexpr int64_t kRow = kCorrectionBytes / 3;
  for (int64_t j = 0; j < kHalfTurn; j += static_cast<int64_t>(hn::Lanes(d))) {
    for (const bool second : {false, true}) {
      const Bits<FloatTag> corrections{unpack(d, log, j, second), unpack(d, log + kRow, j, second),
                                       unpack(d, log + 2 * kRow, j, second)};
      undo_vector(d, at, i + j + (second ? kHalfTurn : 0), c, inverse, instead, corrections,
                  escapes);
    }
  }
}

/// Less than a turn of elements, in memory of its own where a whole turn can be worked on. What
/// fills it up is zeros.
template <class W, class G>
struct PartOfTurn {
  W weight[kTurn] = {};
  Rest<W> rest[kTurn] = {};
  float momentum[kTurn] = {};
  float variance[kTurn] = {};
  G gradient[kTurn] = {};

  PartOfTurn(const View<W, G>& from, int64_t first, int64_t count) {
    std::copy_n(from.gradient + first, count, gradient);
    copy(
        {from.weight + first, rest_from(from, first), from.momentum + first, from.variance + first},
        {weight, rest, momentum, variance}, count);
  }
  void put_back(const View<W, G>& to, int64_t first, int64_t count) const {
    copy({weight, rest, momentum, variance},
         {to.weight + first, rest_from(to, first), to.momentum + first, to.variance + first},
         count);
  }
  View<W, G> view() { return {weight, rest, momentum, variance, gradient}; }

 private:
  struct From {
    const W* weight;
    const Rest<W>* rest;
    const float *momentum, *variance;
  };
  struct To {
    W* weight;
    Rest<W>* rest;
    float *momentum, *variance;
  };
  static Rest<W>* rest_from(const View<W, G>& view, int64_t first) {
    return std::is_same_v<W, float> ? nullptr : view.rest + first;
  }
  static void copy(const From& from, const To& to, int64_t count) {
    std::copy_n(from.weight, count, to.weight);
    if (!std::is_same_v<W, float>) std::copy_n(from.rest, count, to.rest);
    std::copy_n(from.momentum, count, to.momentum);
    std::copy_n(from.variance, count, to.variance);
  }
};

/// Past the caches, as it is read much later, if at all.
HWY_INLINE void stream_out(const uint8_t* from, uint8_t* to, int64_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::copy_n(from, bytes, to);
#else
  const hn::FixedTag<uint8_t, 16> d;
  for (int64_t i = 0; i < bytes; i += 16) hn::Stream(hn::Load(d, from + i), d, to + i);
#endif
}

// Turns [i, end). Not inlined: a turn is much code, compiled for every type and instruction set,
// and the part of a turn at the end takes the same.

template <class W, class G>
HWY_NOINLINE void undo_turns(View<W, G> at, int64_t i, int64_t end, const AdamWCoefficients& c,
                             const Inverse& inverse, const AdamWCoefficients* instead,
                             const uint8_t* log, EscapeReader& escapes) {
  for (; i + kTurn <= end; i += kTurn, log += kCorrectionBytes) {
    prefetch_all(at, std::min(i + kPrefetchAhead, end - kTurn));
    undo_turn(at, i, c, inverse, instead, log, escapes);
  }
}

/// Updates with a log, as far as the escapes find room: returns where that ends.
template <class W, class G>
HWY_NOINLINE int64_t update_turns(View<W, G> at, int64_t i, int64_t end, const AdamWCoefficients& c,
                                  const Inverse& inverse, uint8_t* log, EscapeWriter& escapes) {
  for (; i + kTurn <= end; i += kTurn, log += kCorrectionBytes) {
    prefetch_all(at, std::min(i + kPrefetchAhead, end - kTurn));
    HWY_ALIGN uint8_t corrections[kCorrectionBytes];
    uint32_t spare[kTurnWords];
    uint32_t* const of_turn = escapes.place(spare);
    uint32_t* end_of_turn = of_turn;
    update_turn(at, i, c, inverse, corrections, end_of_turn);
    const auto count = static_cast<uint32_t>(end_of_turn - of_turn);
    if (HWY_UNLIKELY(!escapes.take(of_turn, count))) {
      EscapeReader reader(std::span<const uint32_t>(of_turn, count));
      undo_turns(at, i, i + kTurn, c, inverse, nullptr, corrections, reader);
      break;
    }
    stream_out(corrections, log, kCorrectionBytes);
  }
  return i;
}

template <class W, class G>
int64_t update_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c, uint8_t* log,
                        EscapeWriter& escapes) {
  const View<W, G> at = view_of<W, G>(planes);
  const Inverse inverse(c);
  const int64_t whole = n / kTurn * kTurn;
  int64_t done = update_turns(at, 0, whole, c, inverse, log, escapes);
  if (done == whole && whole < n) {
    PartOfTurn<W, G> part(at, whole, n - whole);
    log += whole / kTurn * kCorrectionBytes;
    if (update_turns(part.view(), 0, kTurn, c, inverse, log, escapes) == kTurn) {
      part.put_back(at, whole, n - whole);
      done = n;
    }
  }
  hwy::FlushStream();
  return done;
}

template <class W, class G>
void undo(const Planes& planes, int64_t n, const AdamWCoefficients& c,
          const AdamWCoefficients* instead, const uint8_t* log, EscapeReader& escapes) {
  const View<W, G> at = view_of<W, G>(planes);
  const Inverse inverse(c);
  const int64_t whole = n / kTurn * kTurn;
  undo_turns(at, 0, whole, c, inverse, instead, log, escapes);
  if (whole == n) return;
  PartOfTurn<W, G> part(at, whole, n - whole);
  log += whole / kTurn * kCorrectionBytes;
  undo_turns(part.view(), 0, kTurn, c, inverse, instead, log, escapes);
  part.put_back(at, whole, n - whole);
}

/// Calls body.template operator()<W, G>() for the types of the planes.
template <class Body>
auto with_types(const Planes& planes, const Body& body) {
  const auto with_weight = [&]<class W>() {
    if (planes.gradient_dtype == DType::F32) return body.template operator()<W, float>();
    if (planes.gradient_dtype == DType::BF16) return body.template operator()<W, BF16>();
    return body.template operator()<W, F16>();
  };
  if (planes.weight_dtype == DType::F32) return with_weight.template operator()<float>();
  if (planes.weight_dtype == DType::F16) return with_weight.template operator()<F16>();
  return with_weight.template operator()<BF16>();
}

int64_t update_range(const Planes& planes, int64_t n, const AdamWCoefficients& c, uint8_t* log,
                     EscapeWriter& escapes) {
  return with_types(planes, [&]<class W, class G>() {
    return update_with_log<W, G>(planes, n, c, log, escapes);
  });
}

void undo_all(const Planes& planes, int64_t n, const AdamWCoefficients& c,
              const AdamWCoefficients* instead, const uint8_t* log, EscapeReader& escapes) {
  with_types(planes, [&]<class W, class G>() { undo<W, G>(planes, n, c, instead, log, escapes); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(update_range);
HWY_EXPORT(undo_all);

int64_t update_range_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                              uint8_t* log, EscapeWriter& escapes) {
  return HWY_DYNAMIC_DISPATCH(update_range)(planes, n, c, log, escapes);
}

void undo_range(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                const AdamWCoefficients* instead, const uint8_t* log, EscapeReader& escapes) {
  HWY_DYNAMIC_DISPATCH(undo_all)(planes, n, c, instead, log, escapes);
}

}  // namespace ebb
#endif
