// Is what the planner chooses the fastest, and does a step take as long as it says?
//
//   bench_choose [--large | --small | --case I]
//
// Large models are simulated on machines with a GPU: every setting by hand against the choice, and
// how long choosing took. Small ones train on the host backend here, with emulated links: every
// setting in turn, round by round, in one process; measured against predicted by the machine's
// rates, which are measured before each case. Then the choice and those near it, or faster, once
// more for many rounds: the choice against the best is the median of how many times as long it took
// in the same round. SteadyRounds count in which other processes left the cores alone and memory
// was as fast, to a fifth, as when rates were measured (steady_turns.h); where none does for a
// minute, the case starts again with new rates, and where none did at last, all are taken (LOUD).
// Settings for which memory does not suffice beside faster ones are left out. Exits with 1 where a
// simulated choice is not the best.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/choose_cases.h"
#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/random_batches.h"
#include "bench/steady_turns.h"
#include "scheduler/search/choose.h"
#include "system/cores.h"
#include "system/memory_limits.h"
#include "tools/machine_rates.h"
#include "tools/trial.h"

namespace ebb::bench {
namespace {

std::string short_name(const Candidate& c) {
  return fmt::format("{}/{}/{}/{}", name_of(c.order).substr(0, 1), name_of(c.recompute),
                     name_of(c.activations).substr(0, 1), name_of(c.update).substr(0, 1));
}

// ---- Large models, simulated

/// How a fixed setting fares against the choice over all cases.
struct Fixed {
  int num_fits = 0;
  double log_ratios = 0;
};
using FixedSettings = std::map<std::string, Fixed>;

bool run_large(const LargeCase& c, FixedSettings& fixed) {
  const Gpt2Config& config = find_gpt2_preset(c.preset);
  const Gpt2 model(config, c.batch_size, config.max_positions, DType::BF16);
  const TrainerOptions options{.gradient_accumulation = c.accumulation,
                               .max_grad_norm = c.clip ? 1.0f : 0.0f};
  const auto start = Clock::now();
  const Preparation p = prepare(model, options, {.device_memory = c.device_bytes}, c.machine);
  const double choosing_s = seconds_since(start);
  const Candidate& chosen = p.candidates[p.chosen];
  fmt::print("{:<10} {:<20} {:>4} GiB {:>2}x{}x{} {:<4} {:<12} {:>9.3f} {:>6.3f} {:>7.3f} |",
             c.preset, c.machine_name, c.device_bytes >> 30, c.accumulation, c.batch_size,
             config.max_positions, c.clip ? "clip" : "", short_name(chosen), chosen.seconds,
             chosen.bound.seconds / chosen.seconds, choosing_s);
  bool best = true;
  for (const Candidate& other : p.candidates) {
    if (!other.why_not.empty()) {
      fmt::print(" {:>7}", "-");
      continue;
    }
    TrainerOptions requested = options;
    requested.micro_batch_order = other.order;
    requested.recompute = other.recompute;
    requested.activations = other.activations;
    requested.update = other.update;
    const Preparation one = prepare(model, requested, {.device_memory = c.device_bytes}, c.machine);
    const double seconds = one.candidates[one.chosen].seconds;
    fmt::print(" {:>7.3f}", seconds / chosen.seconds);
    Fixed& setting = fixed[short_name(other)];
    ++setting.num_fits;
    setting.log_ratios += std::log(seconds / chosen.seconds);
    best = best && chosen.seconds <= seconds * (1 + 1e-9);
  }
  fmt::print("{}\n", best ? "" : "  NOT THE BEST");
  return best;
}

bool run_all_large() {
  fmt::print(
      "simulated; settings: h(orizontal) or v(ertical) / recompute / o(verlap) or w(ait); then "
      "each by hand against the choice, - where it does not fit:\n"
      "h/none/o h/none/w h/block/o h/block/w, and the same for v where there are several "
      "micro-batches\n");
  fmt::print("{:<10} {:<20} {:>8} {:>9}     {:<4} {:<12} {:>9} {:>6} {:>7} | ratios\n", "model",
             "machine", "memory", "step", "", "chosen", "predicted", "share", "chose s");
  bool good = true;
  FixedSettings fixed;
  for (const LargeCase& c : large_cases()) good = run_large(c, fixed) && good;
  fmt::print("fixed settings against the choice, geometric mean of the cases in which they fit:\n");
  for (const auto& [name, setting] : fixed) {
    fmt::print("  {:<12} {:>6.3f} x, fits in {} of {}\n", name,
               std::exp(setting.log_ratios / setting.num_fits), setting.num_fits,
               large_cases().size());
  }
  return good;
}

// ---- Small models, measured

/// A setting that is predicted to be so much slower than the choice is not measured.
constexpr double kHopeless = 1.2;
constexpr size_t kChunkBytes = size_t{2} << 20;
/// Of memory's speed, which had two values on one machine, 1.7 x apart. Of 60 readings of one of
/// them the middle one was within a tenth of 64 % of the others, within a fifth of 95 %.
constexpr double kTolerance = 1.2;

/// A setting with a trainer of its own.
class Setting {
 public:
  Setting(const Model& model, Preparation prepared, const DeviceOptions& device)
      : prepared_(std::move(prepared)),
        device_(create_device(device)),
        trainer_(std::make_unique<Trainer>(model, *device_, prepared_)) {}

  double step(const RandomBatches& data) { return trainer_->step(data.batches(), 3e-5).step_s; }
  const Candidate& candidate() const { return prepared_.candidates[prepared_.chosen]; }

 private:
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
};
using Settings = std::vector<std::unique_ptr<Setting>>;

/// Some of the settings, stepped in turn, round by round (rounds.h knows only whether others left
/// the cores alone).
class SteadyRounds {
 public:
  /// How many suffice: the most, or as many as take so long, but the fewest.
  struct Wanted {
    size_t fewest, most;
    double enough_s;
  };

  SteadyRounds(const SteadyTurns& turns, std::vector<size_t> which)
      : turns_(turns), which_(std::move(which)) {}

  /// False where no round counts any more: the cores are not as fast as planned, for a minute.
  bool measure(const Settings& settings, const RandomBatches& data, const Wanted& wanted) {
    constexpr double kPatience_s = 60;
    double steady_s = 0;
    for (double lost_s = 0; lost_s < kPatience_s;) {
      const size_t num_steady = turns_.num_steady();
      const bool enough = num_steady >= wanted.fewest && steady_s >= wanted.enough_s;
      if (enough || num_steady >= wanted.most) return true;
      const auto start = Clock::now();
      turns_.take([&] { run_one(settings, data); });
      const bool counts = turns_.num_steady() > num_steady;
      const double round_s = seconds_since(start);
      if (counts) steady_s += round_s;
      lost_s = counts ? 0 : lost_s + round_s;
    }
    return false;
  }

  size_t num_steady() const { return turns_.num_steady(); }
  const std::vector<size_t>& which() const { return which_; }
  bool has(size_t setting) const { return std::ranges::find(which_, setting) != which_.end(); }
  double seconds(size_t setting) const {
    return turns_.median_of([&](size_t r) { return step_s_[r].at(setting); });
  }
  /// How many times as long one took as another in the same round.
  double ratio(size_t a, size_t b) const {
    return turns_.median_of([&](size_t r) { return step_s_[r].at(a) / step_s_[r].at(b); });
  }

 private:
  /// Each round begins with another: the first after the meter takes a little longer.
  void run_one(const Settings& settings, const RandomBatches& data) {
    std::ranges::rotate(which_, which_.begin() + 1);
    std::map<size_t, double>& step_s = step_s_.emplace_back();
    for (const size_t i : which_) step_s[i] = settings[i]->step(data);
  }

  SteadyTurns turns_;
  std::vector<size_t> which_;
  std::vector<std::map<size_t, double>> step_s_;  // [round][setting]
};

/// Of the candidates, in their order: the choice, and of those that are not hopeless as many as
/// memory holds side by side, the faster ones.
std::vector<size_t> settings_to_measure(const Preparation& p) {
  const auto seconds = [&](size_t i) { return i == p.chosen ? 0 : p.candidates[i].seconds; };
  std::vector<size_t> settings;
  for (size_t i = 0; i < p.candidates.size(); ++i) {
    const Candidate& c = p.candidates[i];
    const bool hopeless = c.seconds > kHopeless * p.candidates[p.chosen].seconds;
    if (c.why_not.empty() && !hopeless) settings.push_back(i);
  }
  std::ranges::stable_sort(settings, {}, seconds);
  size_t left = read_memory_limits().usable_bytes() / 10 * 9, count = 0;
  for (; count < settings.size(); ++count) {
    const Candidate& c = p.candidates[settings[count]];
    if (c.host_bytes + c.device_bytes > left) break;
    left -= c.host_bytes + c.device_bytes;
  }
  settings.resize(std::max<size_t>(count, 1));
  std::ranges::sort(settings);
  return settings;
}

struct Verdict {
  double error = 0;        ///< of the choice's prediction
  double worst_error = 0;  ///< of any setting's
  double ratio = 1;        ///< measured: choice against the best
};

MachineRates rates_now() {
  return machine_rates({}, DType::BF16, DType::BF16, std::filesystem::path());
}

/// A case with the rates of a moment.
class Attempt {
 public:
  Attempt(const SmallCase& c, const Gpt2& model, CoresMeter& meter)
      : case_(c),
        model_(model),
        data_(model.config().vocabulary, c.batch_size, c.length, c.accumulation) {
    measure_rates(meter);
    plan();
  }

  /// All settings, and then the choice and those that came near it or were faster. False where the
  /// cores are no longer as fast as planned.
  bool measure() {
    constexpr SteadyRounds::Wanted kAll{.fewest = 7, .most = 15, .enough_s = 15};
    constexpr SteadyRounds::Wanted kNear{.fewest = 15, .most = 50, .enough_s = 45};
    for (auto& s : settings_) s->step(data_);
    std::vector<size_t> all(settings_.size());
    std::iota(all.begin(), all.end(), 0);
    all_.emplace(*planned_, std::move(all));
    if (!all_->measure(settings_, data_, kAll)) return false;
    near_.emplace(*planned_, near_choice());
    return near_->which().size() == 1 || near_->measure(settings_, data_, kNear);
  }

  Verdict print() const {
    const Candidate& mine = settings_[of_choice_]->candidate();
    const Verdict verdict = judge();
    const SmallCase& c = case_;
    fmt::print(
        "{:<15} {}x{}x{:<4} {:<4} {:>7.1f} {:>6} {:<14} {:>9.1f} {:>9.1f} {:>+7.1f} {:>+7.1f} "
        "{:>7.3f} {:>3}/{:<3}{} |",
        c.preset, c.accumulation, c.batch_size, c.length, c.clip ? "clip" : "",
        static_cast<double>(*budgets_.device_memory) / (1 << 20),
        c.link > 0 ? fmt::format("{:.0f}", machine_.load_bytes_per_s / 1e6) : "none",
        short_name(mine), 1e3 * mine.seconds, 1e3 * all_->seconds(of_choice_), 100 * verdict.error,
        100 * verdict.worst_error, verdict.ratio, all_->num_steady(),
        near_ ? near_->num_steady() : 0, all_->num_steady() > 0 ? "" : " LOUD");
    for (size_t i = 0; i < settings_.size(); ++i) {
      const Candidate& other = settings_[i]->candidate();
      fmt::print(" {}={:.1f}/{:.1f}", short_name(other), 1e3 * other.seconds,
                 1e3 * all_->seconds(i));
      if (closest().has(i)) fmt::print(" ({:.3f})", closest().ratio(of_choice_, i));
    }
    fmt::print("\n");
    std::fflush(stdout);
    return verdict;
  }

 private:
  /// Until they say the same twice, with memory as fast after them as before: it may have changed
  /// and changed back between.
  void measure_rates(CoresMeter& meter) {
    constexpr int kMostTries = 8;
    constexpr double kSame = 1.05;
    for (int i = 0; i < kMostTries; ++i) {
      const double before = machine_.flops_per_s;
      planned_.emplace(meter, kTolerance);
      MachineRates rates = rates_now();
      fit_to_model(rates,
                   {.config = model_.config(),
                    .batch_size = case_.batch_size,
                    .length = case_.length,
                    .accumulation = case_.accumulation,
                    .chunk_bytes = kChunkBytes},
                   {}, {});
      machine_ = rates.machine;
      const auto [least, most] = std::minmax(before, machine_.flops_per_s);
      if (planned_->as_planned() && most < kSame * least) return;
    }
  }

  void plan() {
    const TrainerOptions options{.chunk_bytes = kChunkBytes,
                                 .gradient_accumulation = case_.accumulation,
                                 .max_grad_norm = case_.clip ? 1.0f : 0.0f};
    const Preparation all = prepare(model_, options, {});
    const size_t least = all.smallest_device_bytes;
    const size_t budget =
        least +
        static_cast<size_t>(case_.memory * static_cast<double>(all.full_device_bytes - least));
    budgets_.device_memory = budget;
    DeviceOptions device{.memory_bytes = budget};
    if (case_.link > 0) {
      // Rates are whole MB/s, so that a machine a little faster does not ask another question.
      const double bytes = static_cast<double>(all.layout->space_bytes(Space::Weights));
      const double kernels_s = all.flops / machine_.flops_per_s;
      const double rate = std::max(1.0, std::round(bytes / (case_.link * kernels_s) / 1e6)) * 1e6;
      device.load_bytes_per_s = device.store_bytes_per_s = rate;
      machine_.load_bytes_per_s = machine_.store_bytes_per_s = rate;
    }
    add_settings(options, device);
  }

  void add_settings(const TrainerOptions& options, const DeviceOptions& device) {
    const Preparation chosen = prepare(model_, options, budgets_, machine_);
    for (const size_t i : settings_to_measure(chosen)) {
      const Candidate& candidate = chosen.candidates[i];
      const bool is_choice = i == chosen.chosen;
      if (is_choice) of_choice_ = settings_.size();
      TrainerOptions requested =
          options;  // recomputes every block or none, where the choice may mix
      requested.micro_batch_order = candidate.order;
      requested.recompute = candidate.recompute;
      requested.activations = candidate.activations;
      requested.update = candidate.update;
      settings_.push_back(std::make_unique<Setting>(
          model_, is_choice ? chosen : prepare(model_, requested, budgets_, machine_), device));
    }
  }

  std::vector<size_t> near_choice() const {
    constexpr double kNearest = 0.94;
    std::vector<size_t> near;
    for (const size_t i : all_->which()) {
      if (all_->ratio(of_choice_, i) > kNearest) near.push_back(i);
    }
    return near;
  }

  const SteadyRounds& closest() const { return near_ && near_->num_steady() > 0 ? *near_ : *all_; }

  Verdict judge() const {
    Verdict verdict;
    for (size_t i = 0; i < settings_.size(); ++i) {
      const double error = settings_[i]->candidate().seconds / all_->seconds(i) - 1;
      if (i == of_choice_) verdict.error = error;
      if (std::abs(error) > std::abs(verdict.worst_error)) verdict.worst_error = error;
    }
    for (const size_t i : closest().which()) {
      verdict.ratio = std::max(verdict.ratio, closest().ratio(of_choice_, i));
    }
    return verdict;
  }

  const SmallCase& case_;
  const Gpt2& model_;
  const RandomBatches data_;
  std::optional<SteadyTurns> planned_;  // no turn yet
  Machine machine_;
  Budgets budgets_;
  Settings settings_;
  size_t of_choice_ = 0;
  std::optional<SteadyRounds> all_, near_;
};

Verdict run_small(const SmallCase& c, CoresMeter& meter) {
  constexpr int kMostAttempts = 3;
  const Gpt2 model(find_gpt2_preset(c.preset), c.batch_size, c.length, DType::BF16);
  std::unique_ptr<Attempt> attempt;
  for (int i = 0; i < kMostAttempts; ++i) {
    attempt.reset();  // first: memory need not hold two
    attempt = std::make_unique<Attempt>(c, model, meter);
    if (attempt->measure()) break;
  }
  return attempt->print();
}

void run_all_small(size_t first, size_t last) {
  const MachineRates rates = rates_now();
  const Machine& m = rates.machine;
  fmt::print(
      "\nmeasured; {:.4g} GFLOP/s products, {:.4g} attention, {:.4g} vectors; {:.1f} us a kernel; "
      "GB/s: {:.3g} memory, {:.3g} and "
      "{:.3g} copies, {:.3g} of all cores, {:.3g} update; {}\n",
      m.flops_per_s / 1e9, m.attention_flops_per_s / 1e9, m.vector_flops_per_s / 1e9,
      1e6 * m.kernel_s, m.device_bytes_per_s / 1e9, m.load_bytes_per_s / 1e9,
      m.store_bytes_per_s / 1e9, m.copy_bytes_per_s / 1e9, m.update_bytes_per_s / 1e9,
      rates.source());
  fmt::print("{:<15} {:<8} {:<4} {:>7} {:>6} {:<14} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7} | {}\n",
             "model", "step", "", "MiB", "MB/s", "chosen", "predicted", "measured", "off %",
             "worst %", "x best", "steady",
             "ms, predicted/measured, of each setting (the choice against it)");
  CoresMeter meter(num_usable_cores());
  Verdict most;
  for (const SmallCase& c : small_cases().subspan(first, last - first)) {
    const Verdict v = run_small(c, meter);
    most.error = std::max(most.error, std::abs(v.error));
    most.worst_error = std::max(most.worst_error, std::abs(v.worst_error));
    most.ratio = std::max(most.ratio, v.ratio);
  }
  fmt::print(
      "at most: the choice's prediction off by {:.1f} %, any setting's by {:.1f} %; the choice "
      "{:.3f} x the best\n",
      100 * most.error, 100 * most.worst_error, most.ratio);
}

int run(int argc, char** argv) {
  bool large = true, small = true;
  size_t first = 0, last = small_cases().size();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--large") {
      small = false;
    } else if (flag == "--small") {
      large = false;
    } else if (flag == "--case" && i + 1 < argc) {
      large = false;
      first = std::min(small_cases().size() - 1, std::strtoul(argv[++i], nullptr, 10));
      last = first + 1;
    } else {
      throw ConfigError("no flag " + flag + "; there are --large, --small, --case I");
    }
  }
  const bool good = !large || run_all_large();
  if (small) run_all_small(first, last);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_choose", [&] { return ebb::bench::run(argc, argv); });
}
