// What does it cost to be able to take an update back?
//
//   bench_undo [parameters in Mi = 16] [threads = one per core]
//
// AdamW without a log, with one, its undo, and undo with another scale in one pass, measured in
// turn in one process; medians of their ratios to the step without a log (rounds.h). The state is
// that of twelve steps from normal weights with gradients over six binary decades. What was logged
// is always undone, so every sample sees the same values; afterwards a hash over the state must be
// the one before, and a redone update the other update, to the bit.
#include <fmt/core.h>

#include <bit>
#include <cstdlib>
#include <vector>

#include "bench/planes_memory.h"
#include "bench/rounds.h"
#include "cpu_adam/state_hash.h"
#include "cpu_adam/undo.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

constexpr int64_t kPiece = 65536;
constexpr int64_t kStepsBefore = 12;

/// Of either sign, magnitudes 2^-16 to 2^-10.
float gradient_at(int64_t i, int64_t t) {
  const uint32_t random = scramble(i * 64 + t);
  const uint32_t exponent = 111 + (random >> 8 & 0xff) % 6;
  return BF16(std::bit_cast<float>((random & 0x807f0000u) | exponent << 23));
}

/// About normal, of standard deviation 0.02, as a GPT's weights are: corrections of those near 0 do
/// not fit.
float master_at(int64_t i) {
  const uint32_t a = scramble(2 * ~i), b = scramble(2 * ~i + 1);
  // Mean 131070, standard deviation 37837.
  const uint32_t sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
  return 0.02f / 37837 * (static_cast<float>(sum) - 131070);
}

AdamWStep step_at(int64_t t, float scale = 1) {
  return {.learning_rate = 3e-4, .adam = {}, .t = t, .gradient_scale = scale};
}

class Run {
 public:
  Run(ThreadTeam& team, const HugePages& plain, const HugePages& logged, const HugePages& log,
      DType type, int64_t n)
      : team_(team),
        plain_(planes_in(plain, type, type, n)),
        logged_(planes_in(logged, type, type, n)),
        log_(log.span()),
        n_(n) {
    for (const Planes& planes : {plain_, logged_}) train(planes);
    before_ = hash();
    // Planes lie one after the other, the gradient last.
    saved_.assign(logged_.weight, const_cast<std::byte*>(logged_.gradient));
  }

  double plain_s() {
    return seconds_of([&] { adamw_update(team_, plain_, n_, {&all_, 1}, now_); });
  }
  double update_s() { return timed(&Run::update, &Run::undo); }
  double undo_s() {
    update();
    return timed(&Run::undo, &Run::update, &Run::undo);
  }
  double redo_s() {
    double seconds = 0;
    int times = 0;
    for (; seconds < 0.3; ++times) {
      update();
      const auto start = Clock::now();
      redo_update(team_, logged_, n_, {&all_, 1}, log_, other_);
      seconds += seconds_since(start);
      restore();
    }
    return seconds / times;
  }
  /// Is a redone update the other update?
  bool redoes() {
    update();
    redo_update(team_, logged_, n_, {&all_, 1}, log_, other_);
    const uint64_t redone = hash();
    restore();
    adamw_update(team_, logged_, n_, {&all_, 1}, other_);
    const uint64_t expected = hash();
    restore();
    return redone == expected;
  }
  bool is_as_before() const { return hash() == before_; }
  double bytes_per_parameter() const {
    return static_cast<double>(log_.used_bytes()) / static_cast<double>(n_);
  }

 private:
  void train(const Planes& planes) const {
    team_.for_each(n_ / kPiece, [&](int64_t piece) {
      ThreadTeam alone(1);
      const Planes at = planes.from(piece * kPiece);
      std::vector<float> masters(kPiece);
      for (int64_t i = 0; i < kPiece; ++i) {
        masters[static_cast<size_t>(i)] = master_at(piece * kPiece + i);
      }
      write_masters(at, masters);
      std::fill_n(at.momentum, kPiece, 0.0f);
      std::fill_n(at.variance, kPiece, 0.0f);
      for (int64_t t = 1; t <= kStepsBefore; ++t) {
        set_gradients(at, piece * kPiece, t);
        if (t < kStepsBefore) adamw_update(alone, at, kPiece, step_at(t), 1, 1);
      }
    });
  }
  static void set_gradients(const Planes& planes, int64_t first, int64_t t) {
    auto* const gradient = const_cast<std::byte*>(planes.gradient);
    for (int64_t i = 0; i < kPiece; ++i) {
      const float value = gradient_at(first + i, t);
      if (planes.gradient_dtype == DType::F32) reinterpret_cast<float*>(gradient)[i] = value;
      if (planes.gradient_dtype == DType::BF16) reinterpret_cast<BF16*>(gradient)[i] = BF16(value);
    }
  }
  void update() {
    if (update_with_log(team_, logged_, n_, {&all_, 1}, now_, log_)) return;
    fmt::print(stderr, "the log has no room\n");
    std::exit(1);
  }
  void restore() {
    const auto piece = static_cast<size_t>(kPiece);
    team_.for_each(static_cast<int64_t>(saved_.size() / piece), [&](int64_t i) {
      std::copy_n(saved_.data() + static_cast<size_t>(i) * piece, piece,
                  logged_.weight + static_cast<size_t>(i) * piece);
    });
  }
  void undo() { undo_update(team_, logged_, n_, {&all_, 1}, log_); }

  /// Seconds of `what`, again and again with `back` after it; at the end `last`.
  double timed(void (Run::*what)(), void (Run::*back)(), void (Run::*last)() = nullptr) {
    double seconds = 0;
    int times = 0;
    for (bool more = true; more;) {
      const auto start = Clock::now();
      (this->*what)();
      seconds += seconds_since(start);
      ++times;
      more = seconds < 0.3;
      if (more || !last) (this->*back)();
    }
    return seconds / times;
  }
  uint64_t hash() const {
    StateHash hash;
    hash.add_parameter(logged_, n_);
    return hash.value();
  }

  ThreadTeam& team_;
  Planes plain_, logged_;
  UndoLog log_;
  int64_t n_;
  AdamWRange all_{.first = 0, .count = n_};
  AdamWStep now_ = step_at(kStepsBefore), other_ = step_at(kStepsBefore, 0.5f);
  std::vector<std::byte> saved_;
  uint64_t before_ = 0;
};

bool report(Run& run, DType type, int64_t n) {
  const Sample samples[] = {[&] { return run.plain_s(); }, [&] { return run.update_s(); },
                            [&] { return run.undo_s(); }};
  const Rounds rounds = measure_rounds(samples, 5, 6);
  const Sample again[] = {[&] { return run.plain_s(); }, [&] { return run.redo_s(); }};
  const Rounds redo = measure_rounds(again, 3, 4);
  fmt::print("{:<5} {:>11.3f} {:>10.2f} {:>8.2f} {:>14.2f} {:>12.3f}   {} rounds {}\n",
             name_of(type), 1e9 * rounds.median(0) / static_cast<double>(n), rounds.ratio(1, 0),
             rounds.ratio(2, 0), redo.ratio(1, 0), run.bytes_per_parameter(), rounds.seconds.size(),
             rounds.quiet && redo.quiet ? "quiet" : "LOUD");
  std::fflush(stdout);
  if (run.is_as_before() && run.redoes()) return true;
  fmt::print("WRONG: the state is not what it was\n");
  return false;
}

}  // namespace

int bench_main(int argc, char** argv) {
  const int64_t mi = argc > 1 ? std::atoll(argv[1]) : 16;
  const int threads = argc > 2 ? std::atoi(argv[2]) : num_usable_cores();
  if (mi < 1 || threads < 1) {
    fmt::print(stderr, "usage: bench_undo [parameters in Mi] [threads]\n");
    return 2;
  }
  const int64_t n = mi << 20;
  ThreadTeam team(threads);
  const HugePages plain(planes_bytes(n)), logged(planes_bytes(n));
  const HugePages log(undo_log_bytes(n, n / 4));
  fmt::print("{} Mi parameters, {} threads; times against the step without a log\n", mi, threads);
  fmt::print("{:<5} {:>11} {:>10} {:>8} {:>14} {:>12}\n", "type", "step ns", "with log", "undo",
             "undo and redo", "log B/param");
  for (const DType type : {DType::BF16, DType::F32}) {
    Run run(team, plain, logged, log, type, n);
    if (!report(run, type, n)) return 1;
  }
  return 0;
}

}  // namespace ebb::bench

int main(int argc, char** argv) { return ebb::bench::bench_main(argc, argv); }
