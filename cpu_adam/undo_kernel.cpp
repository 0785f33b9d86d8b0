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

/// Some elements whose step is on its way.
template <class D>
struct Begun {
  int64_t first;
  Values<D> old;
  Shares<D> add;
  Moments<D> now;
  hn::Vec<D> step;
};

template <class D, class W, class G>
HWY_INLINE Begun<D> begin_update(D d, const View<W, G>& at, int64_t i, const AdamWCoefficients& c) {
  Begun<D> begun;  // member by member: g++ 12 keeps a braced one in memory
  begun.first = i;
  begun.add = shares_of(d, load_float(d, at.gradient + i), c);
  begun.old = load_values(d, at, i);
  begun.now = moments_after(d, begun.old, begun.add, c);
  begun.step = step_of(d, begun.now.m, begun.now.v, c);
  return begun;
}

/// Updates them, returns their corrections.
template <class D, class W, class G>
HWY_INLINE Bits<D> finish_update(D d, const View<W, G>& at, const Begun<D>& begun,
                                 const AdamWCoefficients& c, const Inverse& inverse,
                                 uint32_t*& escapes) {
  const hn::RebindToUnsigned<D> du;
  const Values<D>& old = begun.old;
  const Values<D> now{begun.now.m, begun.now.v, parameter_after(d, old.p, begun.step, c)};
  store_values(d, now, at, begun.first);
  const Bits<D> bits{hn::BitCast(du, old.m), hn::BitCast(du, old.v), hn::BitCast(du, old.p)};
  return correct(d, bits, invert(d, now, begun.add, begun.step, inverse), now.p, escapes);
}

// A vector is begun before the one before it is finished: what waits for a root and a quotient
// would fill the core's window of instructions, and it cannot look past them for the next root.
// The log goes past the caches, as it is read much later, if at all.
template <class W, class G>
HWY_INLINE void update_turn(const View<W, G>& at, int64_t i, const AdamWCoefficients& c,
                            const Inverse& inverse, uint8_t* log, uint32_t*& escapes) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  for (int64_t j = 0; j < kApart; j += static_cast<int64_t>(hn::Lanes(d))) {
    PackedCorrections<FloatTag> packed{hn::Zero(du)};
    Begun<FloatTag> begun = begin_update(d, at, i + j, c);
    for (int64_t k = kApart; k < kUndoElements; k += kApart) {
      const Begun<FloatTag> next = begin_update(d, at, i + j + k, c);
      packed.append(d, finish_update(d, at, begun, c, inverse, escapes));
      begun = next;
    }
    packed.append(d, finish_update(d, at, begun, c, inverse, escapes));
    hn::Stream(packed.words, du, reinterpret_cast<uint32_t*>(log) + j);
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
  store_values(d, advance(d, before, shares_of(d, gradient, *instead), *instead), at, i);
}

template <class W, class G>
HWY_INLINE void undo_turn(const View<W, G>& at, int64_t i, const AdamWCoefficients& c,
                          const Inverse& inverse, const AdamWCoefficients* instead,
                          const uint8_t* log, EscapeReader& escapes) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  for (int64_t j = 0; j < kApart; j += static_cast<int64_t>(hn::Lanes(d))) {
    PackedCorrections<FloatTag> packed{hn::Load(du, reinterpret_cast<const uint32_t*>(log) + j)};
    for (int64_t k = 0; k < kUndoElements; k += kApart) {
      undo_vector(d, at, i + j + k, c, inverse, instead, packed.take_first(d), escapes);
    }
  }
}

/// Less than a turn of elements, in memory of its own where a whole turn can be worked on. What
/// fills it up is zeros.
template <class W, class G>
struct PartOfTurn {
  W weight[kUndoElements] = {};
  Rest<W> rest[kUndoElements] = {};
  float momentum[kUndoElements] = {};
  float variance[kUndoElements] = {};
  G gradient[kUndoElements] = {};

  PartOfTurn(const View<W, G>& from, int64_t count) {
    std::copy_n(from.gradient, count, gradient);
    copy(from, view(), count);
  }
  void put_back(const View<W, G>& to, int64_t count) { copy(view(), to, count); }
  View<W, G> view() {
    return {weight, std::is_same_v<W, float> ? nullptr : rest, momentum, variance, gradient};
  }

 private:
  static void copy(const View<W, G>& from, const View<W, G>& to, int64_t count) {
    std::copy_n(from.weight, count, to.weight);
    if (from.rest) std::copy_n(from.rest, count, to.rest);
    std::copy_n(from.momentum, count, to.momentum);
    std::copy_n(from.variance, count, to.variance);
  }
};

template <class W, class G>
HWY_INLINE void prefetch_turn(const View<W, G>& at, int64_t i, int64_t end) {
  for (int64_t j = i; j < i + kUndoElements; j += kTurn) {
    prefetch_all(at, std::min(j, end - kTurn));
  }
}

// The turns of [0, end). Not inlined: a turn is much code, compiled for every type and instruction
// set, and the part of a turn at the end takes the same.

template <class W, class G>
HWY_NOINLINE void undo_turns(View<W, G> at, int64_t end, AdamWCoefficients c, Inverse inverse,
                             const AdamWCoefficients* instead, const uint8_t* log,
                             EscapeReader& escapes) {
  const int64_t ahead = prefetch_distance();
  for (int64_t i = 0; i + kUndoElements <= end; i += kUndoElements) {
    prefetch_turn(at, i + ahead, end);
    hwy::Prefetch(log + std::min(i + ahead, end - kUndoElements));
    undo_turn(at, i, c, inverse, instead, log + i, escapes);
  }
}

/// Updates with a log, as far as the escapes find room: returns where that ends.
template <class W, class G>
HWY_NOINLINE int64_t update_turns(View<W, G> at, int64_t end, AdamWCoefficients c, Inverse inverse,
                                  uint8_t* log, EscapeWriter& escapes) {
  const int64_t ahead = prefetch_distance();
  int64_t i = 0;
  for (; i + kUndoElements <= end; i += kUndoElements) {
    prefetch_turn(at, i + ahead, end);
    uint32_t spare[kTurnWords];
    uint32_t* const of_turn = escapes.place(spare);
    uint32_t* end_of_turn = of_turn;
    update_turn(at, i, c, inverse, log + i, end_of_turn);
    const auto count = static_cast<uint32_t>(end_of_turn - of_turn);
    if (HWY_UNLIKELY(!escapes.take(of_turn, count))) {
      EscapeReader reader(std::span<const uint32_t>(of_turn, count));
      undo_turns(at.from(i), kUndoElements, c, inverse, nullptr, log + i, reader);
      break;
    }
  }
  return i;
}

template <class W, class G>
int64_t update_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c, uint8_t* log,
                        EscapeWriter& escapes) {
  const View<W, G> at = view_of<W, G>(planes);
  const Inverse inverse(c);
  const int64_t whole = n / kUndoElements * kUndoElements;
  int64_t done = update_turns(at, whole, c, inverse, log, escapes);
  if (done == whole && whole < n) {
    PartOfTurn<W, G> part(at.from(whole), n - whole);
    if (update_turns(part.view(), kUndoElements, c, inverse, log + whole, escapes) != 0) {
      part.put_back(at.from(whole), n - whole);
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
  const int64_t whole = n / kUndoElements * kUndoElements;
  undo_turns(at, whole, c, inverse, instead, log, escapes);
  if (whole == n) return;
  PartOfTurn<W, G> part(at.from(whole), n - whole);
  undo_turns(part.view(), kUndoElements, c, inverse, instead, log + whole, escapes);
  part.put_back(at.from(whole), n - whole);
}

int64_t update_range(const Planes& planes, int64_t n, const AdamWCoefficients& c, uint8_t* log,
                     EscapeWriter& escapes) {
  return with_types(planes, [&]<class W, class G>(W, G) {
    return update_with_log<W, G>(planes, n, c, log, escapes);
  });
}

void undo_all(const Planes& planes, int64_t n, const AdamWCoefficients& c,
              const AdamWCoefficients* instead, const uint8_t* log, EscapeReader& escapes) {
  with_types(planes,
             [&]<class W, class G>(W, G) { undo<W, G>(planes, n, c, instead, log, escapes); });
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
