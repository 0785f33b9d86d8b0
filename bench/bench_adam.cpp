// How near is the optimizer step to what memory allows?
//
//   bench_adam [parameters in Mi = 64] [threads = one per core]
//
// Bounds are measured in the same process, on the same memory, in turn with the step (rounds.h),
// and are the same reads and writes without the arithmetic: of the step's own planes, and of four
// fp32 planes read and three of them written, in bytes a second. Medians. Afterwards a sample of
// elements is compared, to the bit, with a plain loop.
//
// A line for each type of gradient: bf16 and fp16 update bf16 weights with split masters (26 bytes
// a parameter), fp32 updates fp32 weights (28 bytes, so that both bounds are one).
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/planes_memory.h"
#include "bench/rounds.h"
#include "cpu_adam/adamw.h"
#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_adam.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "system/cores.h"
#include "system/denormals.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Combines a plane with another, or with a constant: done twice, it leaves every bit as it was.
template <class T>
HWY_INLINE void touch(T* plane, const T* other, int64_t first, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto streams = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = first; i < first + count; i += streams) {
    const auto with = other ? hn::LoadU(d, other + i) : hn::Set(d, T{5});
    hn::StoreU(hn::Xor(hn::LoadU(d, plane + i), with), d, plane + i);
  }
}

template <class T>
HWY_INLINE void prefetch(const T* plane, int64_t first, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = first; i < first + count; i += kLine) hwy::Prefetch(plane + i);
}

// W is an unsigned integer as wide as weight and gradient are. REQUIRES: n is a multiple of 32.
template <class W>
void touch_all(const Planes& planes, int64_t n) {
  auto* const weight = reinterpret_cast<W*>(planes.weight);
  const auto* const gradient = reinterpret_cast<const W*>(planes.gradient);
  auto* const low = reinterpret_cast<uint16_t*>(planes.low);
  auto* const momentum = reinterpret_cast<uint32_t*>(planes.momentum);
  auto* const variance = reinterpret_cast<uint32_t*>(planes.variance);
  constexpr int64_t kTurn = 32, kAhead = 384;
  for (int64_t i = 0; i < n; i += kTurn) {
    const int64_t ahead = std::min(i + kAhead, n - kTurn);
    prefetch(gradient, ahead, kTurn);
    prefetch(weight, ahead, kTurn);
    if (low) prefetch(low, ahead, kTurn);
    prefetch(momentum, ahead, kTurn);
    prefetch(variance, ahead, kTurn);
    touch(weight, gradient, i, kTurn);
    if (low) touch<uint16_t>(low, nullptr, i, kTurn);
    touch<uint32_t>(momentum, nullptr, i, kTurn);
    touch<uint32_t>(variance, nullptr, i, kTurn);
  }
}

void touch_range(const Planes& planes, int64_t n) {
  planes.low ? touch_all<uint16_t>(planes, n) : touch_all<uint32_t>(planes, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/core.h>

namespace ebb::bench {
namespace {

HWY_EXPORT(touch_range);

constexpr int64_t kPiece = 65536;
constexpr int64_t kSampleEvery = 9973;

// Magnitudes 2^-10 .. 2^-9, exact in bf16 and in fp16.
BF16 gradient_at(int64_t i) {
  return BF16::from_bits(static_cast<uint16_t>(0x3a80u | (scramble(i) & 0x807fu)));
}

void fill_piece(const Planes& planes, int64_t first) {
  std::vector<float> masters(kPiece);
  const Planes piece = planes.from(first);
  auto* const gradient = const_cast<std::byte*>(piece.gradient);
  for (int64_t i = 0; i < kPiece; ++i) {
    masters[static_cast<size_t>(i)] =
        std::bit_cast<float>(0x3c800000u | (scramble(~(first + i)) & 0x807fffffu));
    const float value = gradient_at(first + i);
    if (planes.gradient_dtype == DType::F32) reinterpret_cast<float*>(gradient)[i] = value;
    if (planes.gradient_dtype == DType::BF16) reinterpret_cast<BF16*>(gradient)[i] = BF16(value);
    if (planes.gradient_dtype == DType::F16) reinterpret_cast<F16*>(gradient)[i] = F16(value);
  }
  write_masters(piece, masters);
  std::fill_n(piece.momentum, kPiece, 0.0f);
  std::fill_n(piece.variance, kPiece, 0.0f);
}

struct Element {
  float master, momentum, variance;
  bool operator==(const Element&) const = default;
};

Element element_at(const Planes& planes, int64_t i) {
  Element element{};
  const Planes at = planes.from(i);
  read_masters(at, {&element.master, 1});
  element.momentum = *at.momentum;
  element.variance = *at.variance;
  return element;
}

void update_plainly(Element& e, float gradient, const AdamWCoefficients& c) {
  const float g = gradient * c.gradient_scale;
  e.momentum = c.beta1 * e.momentum + c.one_minus_beta1 * g;
  e.variance = c.beta2 * e.variance + (c.one_minus_beta2 * g) * g;
  const float denominator = std::sqrt(e.variance) * c.v_correction + c.epsilon;
  e.master = e.master - (c.decay_rate * e.master + c.step_size * (e.momentum / denominator));
}

class Run {
 public:
  Run(ThreadTeam& team, const HugePages& memory, DType gradient, int64_t n)
      : team_(team),
        planes_(planes_in(memory, gradient == DType::F32 ? DType::F32 : DType::BF16, gradient, n)),
        float_planes_(planes_in(memory, DType::F32, DType::F32, n)),
        n_(n) {
    each_piece([&](int64_t first) { fill_piece(planes_, first); });
    for (int64_t i = 0; i < n_; i += kSampleEvery) sample_.push_back(element_at(planes_, i));
  }

  /// Seconds of a pass over all parameters.
  double step_s() {
    return seconds_of([&] { adamw_update(team_, planes_, n_, step(++t_), 1, 1); });
  }
  double roof_s() { return touch_s(planes_); }
  double float_roof_s() { return touch_s(float_planes_); }
  /// Compares the sample with what a plain loop makes of it.
  bool verify() const {
    const FlushDenormals flush;
    for (int64_t i = 0, k = 0; i < n_; i += kSampleEvery, ++k) {
      Element expected = sample_[static_cast<size_t>(k)];
      for (int64_t t = 1; t <= t_; ++t) {
        update_plainly(expected, gradient_at(i), adamw_coefficients(step(t), 1, 1));
      }
      if (expected != element_at(planes_, i)) return false;
    }
    return true;
  }

 private:
  static AdamWStep step(int64_t t) {
    return {.learning_rate = 1e-4, .adam = {}, .t = t, .gradient_scale = 0.5f};
  }
  template <class Body>
  void each_piece(const Body& body) {
    team_.for_each(n_ / kPiece, [&](int64_t piece) { body(piece * kPiece); });
  }
  // Every second pass undoes the one before, so the state that lies there is not lost.
  double touch_s(const Planes& planes) {
    return seconds_of([&] {
      each_piece([&](int64_t first) {
        HWY_DYNAMIC_DISPATCH(touch_range)(planes.from(first), kPiece);
      });
    });
  }

  ThreadTeam& team_;
  Planes planes_;
  Planes float_planes_;  // the same memory
  int64_t n_;
  int64_t t_ = 0;
  std::vector<Element> sample_;
};

bool report(ThreadTeam& team, const HugePages& memory, DType gradient, int64_t n) {
  Run run(team, memory, gradient, n);
  const Sample samples[] = {[&] { return run.roof_s(); }, [&] { return run.float_roof_s(); },
                            [&] { return run.step_s(); }};
  const Rounds rounds = measure_rounds(samples);
  if (!run.verify()) {
    fmt::print("{} step: WRONG RESULTS\n", name_of(gradient));
    return false;
  }
  const double ns = 1e9 / static_cast<double>(n);
  const int bytes = gradient == DType::F32 ? 28 : 26;
  const double float_share = rounds.ratio(1, 2) * bytes / 28;
  fmt::print("{:<5} {:>8} {:>12.3f} {:>12.3f} {:>8.1f} {:>7.1f} % {:>10.1f} %   {} {} rounds\n",
             name_of(gradient), bytes, ns * rounds.median(0), ns * rounds.median(2),
             bytes / (ns * rounds.median(2)), 100 * rounds.ratio(0, 2), 100 * float_share,
             rounds.seconds.size(), rounds.quiet ? "quiet" : "LOUD (others used the cores)");
  return true;
}

}  // namespace

int bench_main(int argc, char** argv) {
  const int64_t mi = argc > 1 ? std::atoll(argv[1]) : 64;
  const int threads = argc > 2 ? std::atoi(argv[2]) : num_usable_cores();
  if (mi < 1 || threads < 1) {
    fmt::print(stderr, "usage: bench_adam [parameters in Mi] [threads]\n");
    return 2;
  }
  const int64_t n = mi << 20;
  ThreadTeam team(threads);
  const HugePages memory(planes_bytes(n));
  fmt::print("AdamW step, {} Mi parameters, {} threads; results verified to the bit\n", mi,
             threads);
  fmt::print("{:<5} {:>8} {:>12} {:>12} {:>8} {:>9} {:>12}\n", "type", "B/param", "bound ns",
             "step ns", "GB/s", "share", "of 4r3w");
  for (DType gradient : {DType::BF16, DType::F16, DType::F32}) {
    if (!report(team, memory, gradient, n)) return 1;
  }
  return 0;
}

}  // namespace ebb::bench

int main(int argc, char** argv) { return ebb::bench::bench_main(argc, argv); }
#endif
