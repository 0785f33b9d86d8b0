// How large is the undo log of an update in training?
//
//   bench_undo_log [text: a file or folder = /usr/include/eigen3] [preset = gpt-6x384-bytes]
//                  [flags of Google Benchmark]
//
// A GPT over bytes learns a text. The gradients are real ones: a trainer whose AdamW has beta1 = 0
// and a learning rate of 0 keeps them as its momentum. The weights are those of an AdamW of the
// usual settings, warmed up over ten steps and clipped to 1, which runs here on one set of planes
// with a log. One benchmark for each step that is looked at; the time is that of the update.
// Achieved is the size of its log in bytes a parameter, outliers included. The bound is one byte a
// parameter, the corrections alone, and share is bound / achieved. The other counters are the
// percentages of momenta, variances and masters that are outliers; after them are the percentages
// of corrections of 0, 1, 2, ... for each of the three. Every logged update is undone once, and the
// hash of the state is compared.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpt2_preset.h"
#include "bench/micro_benchmark.h"
#include "cpu_adam/gradient_norm.h"
#include "cpu_adam/state_hash.h"
#include "cpu_adam/undo.h"
#include "device/update_sizes.h"
#include "io/sample_order.h"
#include "io/token_data.h"
#include "scheduler/run/trainer.h"
#include "system/clock.h"
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
  void read_masters(ParameterId id, std::span<float> values) {
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
            .schedule = {.update = UpdateOrder::Wait},
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
  explicit State(Gradients& gradients) {
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
    const auto bytes = [](auto& plane) { return reinterpret_cast<std::byte*>(plane.data()); };
    return {.planes = {bytes(weight_), bytes(low_), bytes(momentum_), bytes(variance_)},
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

/// Of momenta, variances and masters (undo_log.h), in whole groups of kUndoElements.
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
  // Moves the outliers to the end.
  std::swap(counts[2][3], counts[2][7]);
  return counts;
}

double percent(const Counts& counts, size_t i) {
  const auto num_counted = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return 100 * static_cast<double>(counts[i]) / static_cast<double>(num_counted);
}

/// The model and its state of training.
class Training {
 public:
  Training(const std::string& text, const std::string& preset)
      : model_(find_gpt2_preset(preset), kBatch, kLength, DType::BF16),
        gradients_(model_),
        state_(gradients_),
        data_({text}, TokenType::Bytes),
        batches_(data_, SampleOrder(data_.num_samples(kLength), DataOrder::Shuffled, 1),
                 {.num_batches = 1, .batch_size = kBatch, .length = kLength}),
        log_(state_.size()),
        team_(num_usable_cores()) {}

  int num_steps() const { return num_steps_; }
  /// Seconds of the update.
  double step() {
    ++num_steps_;
    state_.give_masters(gradients_);
    const auto position = static_cast<uint64_t>(num_steps_ - 1) * batches_.shape().num_samples();
    loss_ = gradients_.run(batches_.load(position), [&](ParameterId id, const float* gradient) {
      state_.set_gradient(id, gradient);
    });
    const uint64_t hash_before = state_.hash();
    update();
    undo_update(team_, state_.planes(), state_.size(), state_.runs(), log_.log());
    if (state_.hash() != hash_before) throw LogicError("the state is not what it was");
    const double start_s = steady_now_s();
    update();
    const double seconds = steady_now_s() - start_s;
    log_.log().drop();
    return seconds;
  }
  /// Reports the last step.
  void report(benchmark::State& state) {
    const auto parameters = static_cast<double>(state_.num_parameters());
    const double bytes = static_cast<double>(log_.log().used_bytes()) / parameters;
    const auto counts = count_corrections(log_.corrections(), state_.runs());
    state.counters["bound"] = 1;
    state.counters["achieved"] = bytes;
    state.counters["share"] = 1 / bytes;
    state.counters["loss"] = loss_;
    std::string corrections;
    for (size_t plane = 0; plane < counts.size(); ++plane) {
      state.counters[kOutliers[plane]] = percent(counts[plane], kOutlier);
      corrections += std::string(1, kOutliers[plane][0]) + ":";
      for (size_t i = 0; i < (plane < 2 ? 7 : 3); ++i) {
        corrections += fmt::format(" {:.3g}", percent(counts[plane], i));
      }
      corrections += plane < 2 ? "; " : "";
    }
    state.SetLabel(corrections);
  }

 private:
  static constexpr size_t kOutlier = 7;
  static constexpr const char* kOutliers[] = {"momentum_outliers", "variance_outliers",
                                              "parameter_outliers"};

  void update() {
    const AdamWStep step{
        .learning_rate = kLearningRate * std::min(1.0, static_cast<double>(num_steps_) / kWarmup),
        .adam = {},
        .t = num_steps_,
        .gradient_scale = clip_scale(state_.norm(), 1)};
    if (update_with_log(team_, state_.planes(), state_.size(), state_.runs(), step, log_.log())) {
      return;
    }
    throw LogicError("the log has no room for as many outliers as there are parameters");
  }

  const Gpt2 model_;
  Gradients gradients_;
  State state_;
  const TokenData data_;
  Batches batches_;
  Log log_;
  ThreadTeam team_;
  int num_steps_ = 0;
  double loss_ = 0;
};

/// Google Benchmark runs benchmarks in any order, so the training may have to start again.
void measure(benchmark::State& state, int num_steps, std::optional<Training>& training,
             const std::string& text, const std::string& preset) {
  for (auto iteration : state) {
    (void)iteration;
    if (!training || training->num_steps() >= num_steps) training.emplace(text, preset);
    double seconds = 0;
    while (training->num_steps() < num_steps) seconds = training->step();
    state.SetIterationTime(seconds);
  }
  training->report(state);
}

void register_all(Arguments arguments) {
  const std::string text = !arguments.empty() ? arguments[0] : "/usr/include/eigen3";
  const std::string preset = arguments.size() > 1 ? arguments[1] : "gpt-6x384-bytes";
  const auto training = std::make_shared<std::optional<Training>>();
  for (const int num_steps : {1, 2, 3, 5, 10, 20, 40, 60}) {
    register_benchmark(
        "log of step/" + std::to_string(num_steps),
        [=](benchmark::State& state) { measure(state, num_steps, *training, text, preset); })
        ->Iterations(1)
        ->Repetitions(1);  // the steps are always the same
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
