// How large are the corrections of an undo log in training, and so the log?
//
//   bench_undo_log [text: files or folders = /usr/include/eigen3] [preset = gpt-6x384-bytes]
//                  [steps = 60]
//
// A GPT over bytes learns a text. The gradients are the real ones, as they come home in bf16: a
// trainer whose AdamW has beta1 = 0 and a rate of 0 keeps them as its momentum. The weights are
// those of an AdamW of the usual settings, warmed up over ten steps, clipped to 1, that runs here
// on one set of planes with a log. A line a step: shares of momentum (m), variance (v) and master
// (p) that are outliers; bytes of log for each parameter, outliers included. At the end the last
// step's corrections. Every logged update is undone once, and the state's hash compared.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "cpu_adam/gradient_norm.h"
#include "cpu_adam/state_hash.h"
#include "cpu_adam/undo.h"
#include "device/update_sizes.h"
#include "io/sample_order.h"
#include "io/token_data.h"
#include "scheduler/run/trainer.h"
#include "system/cores.h"
#include "system/thread_team.h"
#include "tools/batches.h"

namespace ebb::bench {
namespace {

constexpr int64_t kBatch = 4, kLength = 128;
constexpr int kWarmup = 10;
constexpr double kLearningRate = 1e-3;

/// Gradients of given weights.
class Gradients {
 public:
  explicit Gradients(const Model& model)
      : model_(model),
        prepared_(prepare(model, options(), {})),
        device_(create_device({.memory_bytes = prepared_.ledger.total(Tier::Device)})),
        trainer_(model, *device_, prepared_) {}

  const Layout& layout() const { return trainer_.layout(); }
  void read_masters(ParameterId id, std::span<float> values) const {
    trainer_.read_parameter(id, 0, values);
  }
  void write_masters(ParameterId id, std::span<const float> values) {
    trainer_.write_parameter(id, 0, values);
  }
  /// The loss. Calls take(id, gradient) for every parameter.
  template <class Take>
  double run(std::span<const MicroBatch> batches, const Take& take) {
    const double loss = trainer_.step(batches, 0).loss;
    const StateReader reader = trainer_.lock_state();
    constexpr size_t kMomentum = 2;  // of bf16's planes
    for (const ParameterId id : reader.parts()) {
      gradient_.clear();
      reader.read_plane(id, kMomentum, [&](std::span<const std::byte> bytes) {
        const auto* const values = reinterpret_cast<const float*>(bytes.data());
        gradient_.insert(gradient_.end(), values, values + bytes.size() / sizeof(float));
      });
      take(id, gradient_.data());
    }
    return loss;
  }

 private:
  static TrainerOptions options() {
    return {.dtype = DType::BF16,
            .update = UpdateOrder::Wait,
            .adam = {.beta1 = 0, .weight_decay = 0},
            .max_grad_norm = 0};
  }
  const Model& model_;
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
  std::vector<float> gradient_;
};

/// The state that learns: all parameters one after the other.
class State {
 public:
  explicit State(const Gradients& gradients) {
    const Layout& layout = gradients.layout();
    for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
      const auto count = static_cast<int64_t>(layout.num_elements(id));
      runs_.push_back({.first = num_,
                       .count = count,
                       .decay_factor = layout.parameter(id).decay ? 1.0 : 0.0,
                       .learning_rate_factor = layout.parameter(id).learning_rate_factor});
      num_trained_ += count;
      num_ += (count + kUndoElements - 1) / kUndoElements * kUndoElements;
    }
    const auto n = static_cast<size_t>(num_);
    weight_.resize(n);
    low_.resize(n);
    momentum_.resize(n);
    variance_.resize(n);
    gradient_.resize(n);
    std::vector<float> values;
    for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
      values.resize(layout.num_elements(id));
      gradients.read_masters(id, values);
      write_masters(planes().from(runs_[id].first), values);
    }
  }

  Planes planes() {
    return {.weight = reinterpret_cast<std::byte*>(weight_.data()),
            .low = low_.data(),
            .momentum = momentum_.data(),
            .variance = variance_.data(),
            .gradient = reinterpret_cast<const std::byte*>(gradient_.data()),
            .weight_dtype = DType::BF16,
            .gradient_dtype = DType::BF16};
  }
  int64_t size() const { return num_; }
  int64_t num_parameters() const { return num_trained_; }
  std::span<const AdamWRange> runs() const { return runs_; }

  void give_masters(Gradients& to) {
    std::vector<float> values;
    for (ParameterId id = 0; id < runs_.size(); ++id) {
      values.resize(static_cast<size_t>(runs_[id].count));
      read_masters(planes().from(runs_[id].first), values);
      to.write_masters(id, values);
    }
  }
  void set_gradient(ParameterId id, const float* from) {
    BF16* const to = gradient_.data() + runs_[id].first;
    std::transform(from, from + runs_[id].count, to, [](float x) { return BF16(x); });
  }
  double norm() const {
    double sum = 0;
    for (const BF16 x : gradient_) sum += static_cast<double>(float{x}) * float{x};
    return std::sqrt(sum);
  }
  uint64_t hash() {
    StateHash hash;
    hash.add_parameter(planes(), num_);
    return hash.value();
  }

 private:
  std::vector<AdamWRange> runs_;  // of each parameter
  int64_t num_ = 0, num_trained_ = 0;
  std::vector<BF16> weight_, gradient_;
  std::vector<int16_t> low_;
  std::vector<float> momentum_, variance_;
};

class Log {
 public:
  explicit Log(int64_t n) : memory_(undo_log_bytes(n, n) + 64), log_(aligned()) {}
  UndoLog& log() { return log_; }
  const uint8_t* corrections() { return reinterpret_cast<const uint8_t*>(aligned().data()); }

 private:
  std::span<std::byte> aligned() {
    const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    return std::span(memory_).subspan(past == 0 ? 0 : 64 - past, memory_.size() - 64);
  }
  std::vector<std::byte> memory_;
  UndoLog log_;
};

/// How many elements of a plane have a correction of 0 .. 6, and how many are outliers (7; of
/// masters 0 .. 2, and 3).
using Counts = std::array<int64_t, 8>;

/// Momenta, variances and masters (undo_log.h) of the whole turns of runs, kUndoElements each.
std::array<Counts, 3> count_corrections(const uint8_t* log, std::span<const AdamWRange> runs) {
  std::array<Counts, 3> counts = {};
  for (const AdamWRange& run : runs) {
    const int64_t end = run.first + run.count / kUndoElements * kUndoElements;
    for (int64_t i = run.first; i < end; ++i) {
      ++counts[0][log[i] & 7];
      ++counts[1][log[i] >> 3 & 7];
      ++counts[2][log[i] >> 6 & 3];
    }
  }
  // Outliers last.
  std::swap(counts[2][3], counts[2][7]);
  return counts;
}

void update(ThreadTeam& team, State& state, const AdamWStep& step, UndoLog& log) {
  if (update_with_log(team, state.planes(), state.size(), state.runs(), step, log)) return;
  throw ConfigError("the log has no room for as many outliers as there are parameters");
}

void print_header() {
  fmt::print("{:>4} {:>6} {:>5} | {:^23} | {:>7}\n", "step", "loss", "scale", "outliers, %", "log");
  fmt::print("{:>17} | {:>7} {:>7} {:>7} | B/param\n", "", "m", "v", "p");
}

double percent(const Counts& counts, size_t i) {
  const auto num_counted = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return 100 * static_cast<double>(counts[i]) / static_cast<double>(num_counted);
}

void print(int t, double loss, float scale, const std::array<Counts, 3>& counts,
           double bytes_per_parameter) {
  fmt::print("{:>4} {:>6.3f} {:>5.2f} |", t, loss, scale);
  for (const Counts& c : counts) fmt::print(" {:>7.3f}", percent(c, 7));
  fmt::print(" | {:>7.3f}\n", bytes_per_parameter);
  std::fflush(stdout);
}

void print_corrections(const std::array<Counts, 3>& counts) {
  fmt::print("\ncorrection, % {:>9} {:>7} {:>7}\n", "m", "v", "p");
  for (size_t i = 0; i < 8; ++i) {
    fmt::print("{:>13}", i < 7 ? std::to_string(i) : "outlier");
    for (const Counts& c : counts) fmt::print(" {:>7.3f}", percent(c, i));
    fmt::print("\n");
  }
}

void run(const std::string& text, const std::string& preset, int steps) {
  const Gpt2 model(find_gpt2_preset(preset), kBatch, kLength, DType::BF16);
  Gradients gradients(model);
  State state(gradients);
  const TokenData data({text}, TokenType::Bytes);
  Batches batches(data, SampleOrder(data.num_samples(kLength), DataOrder::Shuffled, 1),
                  {.num_batches = 1, .batch_size = kBatch, .length = kLength});
  Log log(state.size());
  ThreadTeam team(num_usable_cores());
  fmt::print("{}, {} parameters, {} tokens a step\n", preset, state.num_parameters(),
             kBatch * kLength);
  print_header();
  for (int t = 1; t <= steps; ++t) {
    state.give_masters(gradients);
    const auto position = static_cast<uint64_t>(t - 1) * batches.shape().num_samples();
    const double loss = gradients.run(
        batches.load(position),
        [&](ParameterId id, const float* gradient) { state.set_gradient(id, gradient); });
    const AdamWStep step{.learning_rate = kLearningRate * std::min(1.0, double(t) / kWarmup),
                         .adam = {},
                         .t = t,
                         .gradient_scale = clip_scale(state.norm(), 1)};
    const uint64_t before = state.hash();
    update(team, state, step, log.log());
    undo_update(team, state.planes(), state.size(), state.runs(), log.log());
    if (state.hash() != before) throw LogicError("WRONG: the state is not what it was");
    update(team, state, step, log.log());
    log.log().drop();
    if (t > 3 && t % 5 != 0 && t != steps) continue;
    const auto counts = count_corrections(log.corrections(), state.runs());
    print(
        t, loss, step.gradient_scale, counts,
        static_cast<double>(log.log().used_bytes()) / static_cast<double>(state.num_parameters()));
    if (t == steps) print_corrections(counts);
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_undo_log", [&] {
    ebb::bench::run(argc > 1 ? argv[1] : "/usr/include/eigen3",
                    argc > 2 ? argv[2] : "gpt-6x384-bytes", argc > 3 ? std::atoi(argv[3]) : 60);
    return 0;
  });
}
