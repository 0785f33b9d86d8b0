// How close is AdamW on the CPU to the limit of memory bandwidth?
//
//   bench_adam [parameters in Mi = 64] [threads = one per core] [flags of Google Benchmark]
//
// One benchmark for each type of gradient: bf16 and fp16 gradients update bf16 weights with split
// masters, which moves 26 bytes a parameter; fp32 gradients update fp32 weights, which moves 28.
// The roof is the same reads and writes of the same planes without the arithmetic. Bound and
// achieved are bytes a second, the time is that of one update of all parameters. After each run a
// sample of elements is compared, to the bit, with a plain loop.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "bench/micro_benchmark.h"
#include "bench/planes_memory.h"
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

// Combines a plane with another plane or with a constant. Applied twice, it restores every bit.
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
  constexpr bool kSplit = sizeof(W) == 2;  // bf16 weights
  auto* const weight = reinterpret_cast<W*>(planes[0]);
  const auto* const gradient = reinterpret_cast<const W*>(planes.gradient);
  auto* const low = kSplit ? reinterpret_cast<uint16_t*>(planes[1]) : nullptr;
  auto* const momentum = reinterpret_cast<uint32_t*>(planes[kSplit ? 2 : 1]);
  auto* const variance = reinterpret_cast<uint32_t*>(planes[kSplit ? 3 : 2]);
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
  planes.weight_dtype == DType::BF16 ? touch_all<uint16_t>(planes, n)
                                     : touch_all<uint32_t>(planes, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
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
  clear_moments(piece, kPiece);
}

struct Element {
  float master, momentum, variance;
  bool operator==(const Element&) const = default;
};

Element element_at(const Planes& planes, int64_t i) {
  Element element{};
  const Planes at = planes.from(i);
  read_masters(at, {&element.master, 1});
  const auto [momentum, variance] = moments_of(at);
  element.momentum = *momentum;
  element.variance = *variance;
  return element;
}

void update_plainly(Element& e, float gradient, const AdamWCoefficients& c) {
  const float g = gradient * c.gradient_scale;
  e.momentum = c.beta1 * e.momentum + c.one_minus_beta1 * g;
  e.variance = c.beta2 * e.variance + (c.one_minus_beta2 * g) * g;
  const float denominator = std::sqrt(e.variance) * c.v_correction + c.epsilon;
  e.master = e.master - (c.decay_rate * e.master + c.step_size * (e.momentum / denominator));
}

/// Planes that are updated repeatedly.
class AdamW {
 public:
  AdamW(DType gradient, int64_t n, int num_threads)
      : team_(num_threads),
        memory_(planes_bytes(n)),
        planes_(planes_in(memory_, gradient == DType::F32 ? DType::F32 : DType::BF16, gradient, n)),
        n_(n) {
    each_piece([&](int64_t first) { fill_piece(planes_, first); });
    for (int64_t i = 0; i < n_; i += kSampleEvery) sample_.push_back(element_at(planes_, i));
  }

  void measure(benchmark::State& state) {
    const double bytes = static_cast<double>(n_) *
                         update_bytes_per_parameter(planes_.weight_dtype, planes_.gradient_dtype);
    // The second pass of the roof undoes what the first did to the planes.
    const auto touch_twice = [&] {
      touch();
      touch();
    };
    measure_against_roof(
        state, {2 * bytes, touch_twice},
        {bytes, [&] { adamw_update(team_, planes_, n_, step(++num_updates_), 1, 1); }});
    if (!is_right()) fail(state, "the planes differ from what a plain loop makes of them");
  }

 private:
  static AdamWStep step(int64_t t) {
    return {.learning_rate = 1e-4, .adam = {}, .t = t, .gradient_scale = 0.5f};
  }
  template <class Body>
  void each_piece(const Body& body) {
    team_.for_each(n_ / kPiece, [&](int64_t piece) { body(piece * kPiece); });
  }
  void touch() {
    each_piece([&](int64_t first) {
      HWY_DYNAMIC_DISPATCH(touch_range)(planes_.from(first), kPiece);
    });
  }
  bool is_right() const {
    const FlushDenormals flush;
    std::vector<AdamWCoefficients> steps;
    for (int64_t t = 1; t <= num_updates_; ++t) steps.push_back(adamw_coefficients(step(t), 1, 1));
    for (int64_t i = 0, k = 0; i < n_; i += kSampleEvery, ++k) {
      Element expected = sample_[static_cast<size_t>(k)];
      for (const AdamWCoefficients& c : steps) update_plainly(expected, gradient_at(i), c);
      if (expected != element_at(planes_, i)) return false;
    }
    return true;
  }

  ThreadTeam team_;
  HugePages memory_;
  Planes planes_;
  int64_t n_;
  int64_t num_updates_ = 0;
  std::vector<Element> sample_;  // as it was before the first update
};

void register_all(Arguments arguments) {
  const int64_t n = number_in(arguments, 0, 64) << 20;
  const auto num_threads = static_cast<int>(number_in(arguments, 1, num_usable_cores()));
  for (DType gradient : {DType::BF16, DType::F16, DType::F32}) {
    const auto adamw = made_once<AdamW>(gradient, n, num_threads);
    register_benchmark("AdamW/" + std::string(name_of(gradient)),
                       [=](benchmark::State& state) { adamw().measure(state); });
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
#endif
