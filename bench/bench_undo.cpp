// How much slower is an update that can be rolled back?
//
//   bench_undo [parameters in Mi = 16] [threads = one per core] [flags of Google Benchmark]
//
// The benchmarks are an update with an undo log, its rollback, and one pass that rolls it back and
// updates again with another gradient scale. The roof is the update without a log, on separate
// planes. Bound and achieved are parameters a second; 1 / share is the time relative to the roof.
// The state is that of twelve steps from normal weights with gradients over six binary decades.
// Every update is undone before the next run, so each run sees the same values. Afterwards a hash
// over the state must be the one before, and an update that is made again must have the bits of the
// other update.
#include <bit>
#include <string>
#include <vector>

#include "bench/micro_benchmark.h"
#include "bench/planes_memory.h"
#include "cpu_adam/state_hash.h"
#include "cpu_adam/undo.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

constexpr int64_t kPiece = 65536;
constexpr int64_t kStepsBefore = 12;

/// Gradients of both signs, with magnitudes from 2^-16 to 2^-10.
float gradient_at(int64_t i, int64_t t) {
  const uint32_t random = scramble(i * 64 + t);
  const uint32_t exponent = 111 + (random >> 8 & 0xff) % 6;
  return BF16(std::bit_cast<float>((random & 0x807f0000u) | exponent << 23));
}

/// Approximately normal with standard deviation 0.02, like the weights of a GPT. The corrections of
/// those near 0 do not fit into their bits.
float master_at(int64_t i) {
  const uint32_t a = scramble(2 * ~i), b = scramble(2 * ~i + 1);
  // Mean 131070, standard deviation 37837.
  const uint32_t sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
  return 0.02f / 37837 * (static_cast<float>(sum) - 131070);
}

AdamWStep step_at(int64_t t, float scale = 1) {
  return {.learning_rate = 3e-4, .adam = {}, .t = t, .gradient_scale = scale};
}

class Undo {
 public:
  Undo(DType type, int64_t n, int num_threads)
      : team_(num_threads),
        plain_memory_(planes_bytes(n)),
        logged_memory_(planes_bytes(n)),
        log_memory_(undo_log_bytes(n, n / 4)),
        plain_(planes_in(plain_memory_, type, type, n)),
        logged_(planes_in(logged_memory_, type, type, n)),
        log_(log_memory_.span()),
        n_(n) {
    for (const Planes& planes : {plain_, logged_}) train(planes);
    hash_before_ = hash();
    // Planes lie one after the other, the gradient last.
    saved_.assign(logged_[0], const_cast<std::byte*>(logged_.gradient));
    check_redo();
  }

  void measure_update(benchmark::State& state) {
    measure(
        state, {}, [this] { update(); }, [this] { undo(); });
  }
  void measure_undo(benchmark::State& state) {
    measure(
        state, [this] { update(); }, [this] { undo(); }, {});
  }
  void measure_redo(benchmark::State& state) {
    measure(
        state, [this] { update(); }, [this] { redo(); }, [this] { restore(); });
  }

 private:
  void measure(benchmark::State& state, const std::function<void()>& before,
               const std::function<void()>& kernel, const std::function<void()>& after) {
    const auto parameters = static_cast<double>(n_);
    const auto plain = [this] { adamw_update(team_, plain_, n_, {&all_, 1}, now_); };
    measure_against_roof(state, {parameters, plain}, {parameters, kernel}, before, after);
    state.counters["log_bytes_per_parameter"] = static_cast<double>(log_.used_bytes()) / parameters;
    if (hash() != hash_before_) fail(state, "the state is not what it was");
  }
  void train(const Planes& planes) {
    team_.for_each(n_ / kPiece, [&](int64_t piece) {
      ThreadTeam alone(1);
      const Planes at = planes.from(piece * kPiece);
      std::vector<float> masters(kPiece);
      for (int64_t i = 0; i < kPiece; ++i) {
        masters[static_cast<size_t>(i)] = master_at(piece * kPiece + i);
      }
      write_masters(at, masters);
      clear_moments(at, kPiece);
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
    throw LogicError("the log has no room for the outliers of an update");
  }
  void undo() { undo_update(team_, logged_, n_, {&all_, 1}, log_); }
  void redo() { redo_update(team_, logged_, n_, {&all_, 1}, log_, other_); }
  /// Copies the state back.
  void restore() {
    const auto piece = static_cast<size_t>(kPiece);
    team_.for_each(static_cast<int64_t>(saved_.size() / piece), [&](int64_t i) {
      std::copy_n(saved_.data() + static_cast<size_t>(i) * piece, piece,
                  logged_[0] + static_cast<size_t>(i) * piece);
    });
  }
  /// Throws if the repeated update does not have the bits of the other update.
  void check_redo() {
    update();
    redo();
    const uint64_t redone = hash();
    restore();
    adamw_update(team_, logged_, n_, {&all_, 1}, other_);
    const uint64_t expected = hash();
    restore();
    if (redone != expected) throw LogicError("an update that is made again has other bits");
  }
  uint64_t hash() const {
    StateHash hash;
    hash.add_parameter(logged_, n_);
    return hash.value();
  }

  ThreadTeam team_;
  HugePages plain_memory_, logged_memory_, log_memory_;
  Planes plain_, logged_;
  UndoLog log_;
  int64_t n_;
  AdamWRange all_{.first = 0, .count = n_};
  AdamWStep now_ = step_at(kStepsBefore), other_ = step_at(kStepsBefore, 0.5f);
  std::vector<std::byte> saved_;
  uint64_t hash_before_ = 0;
};

void register_all(Arguments arguments) {
  const int64_t n = number_in(arguments, 0, 16) << 20;
  const auto num_threads = static_cast<int>(number_in(arguments, 1, num_usable_cores()));
  for (const DType type : {DType::BF16, DType::F32}) {
    const auto undo = made_once<Undo>(type, n, num_threads);
    const auto add = [&](const char* name, void (Undo::*measure)(benchmark::State&)) {
      register_benchmark(std::string(name) + "/" + std::string(name_of(type)),
                         [=](benchmark::State& state) { (undo().*measure)(state); });
    };
    add("update with log", &Undo::measure_update);
    add("undo", &Undo::measure_undo);
    add("undo and redo", &Undo::measure_redo);
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
