// Is the planner's choice the fastest setting, and are predicted step times right?
//
//   bench_choose [--large | --small | --case I] [--rounds 9]
//
// Large models are simulated on machines with a GPU: the best plan with one fixed value of a flag
// against the choice, and how long choosing took. The program ends with 1 where such a plan is
// better than the choice. As in the planner, one with speculative updates is better only if it is
// 3 % faster, and of equally fast ones the one that moves fewer bytes. Then the mappings of a step
// before and after with_kept_mappings(), and how long that took; the program also ends with 1 where
// the step is slower then.
//
// Small models train here, on the host backend, with emulated links, and some of them with emulated
// compute. The machine's rates are measured before each case, and predictions follow from them
// alone. A round is a step of every setting. The program prints medians of the rounds: predicted
// and measured times, and the time of the choice relative to the best setting in the same round. A
// prediction may be wrong by 10 % for emulated compute, and by 25 % for real compute of models
// below 100 M parameters (15 % above); a line reports a larger error. All measured settings are in
// memory at the same time; slower settings that do not fit are left out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/choose_cases.h"
#include "bench/exit_code.h"
#include "bench/gpt2_preset.h"
#include "bench/random_batches.h"
#include "bench/rounds.h"
#include "bench/tolerance.h"
#include "scheduler/plan/kept_mappings.h"
#include "scheduler/search/choose.h"
#include "scheduler/search/evaluator.h"
#include "system/cores.h"
#include "system/memory_limits.h"
#include "tools/machine_rates.h"

namespace ebb::bench {
namespace {

/// With the recomputation of the first layer: others may have another.
std::string short_name(const Candidate& c) {
  const Schedule& s = c.schedule;
  return fmt::format("{}/{}/{}/{}", name_of(s.micro_batch_order).substr(0, 1),
                     name_of_groups(s.recompute.of_layer(0)), name_of(s.activations).substr(0, 1),
                     name_of(s.update).substr(0, 1));
}

// ---- Large models, simulated

/// A value of one flag of the schedule. The planner chooses the others.
struct Fixed {
  const char* name;
  ScheduleRequest request;
};
const Fixed kFixed[] = {
    {"none", {.recompute = kRecomputeNone}},
    {"norms", {.recompute = Recompute{.groups = {kNormsLevel}}}},
    {"mlp", {.recompute = Recompute{.groups = {kMlpLevel}}}},
    {"attention", {.recompute = Recompute{.groups = {kAttentionLevel}}}},
    {"layer", {.recompute = kRecomputeEach}},
    {"sqrt", {.recompute = SquareRootOfLayers{}}},
    {"horiz.", {.micro_batch_order = MicroBatchOrder::Horizontal}},
    {"vertical", {.micro_batch_order = MicroBatchOrder::Vertical}},
    {"device", {.activations = ActivationPlacement::Device}},
    {"offload", {.activations = ActivationPlacement::Offload}},
    {"overlap", {.update = UpdateOrder::Overlap}},
    {"wait", {.update = UpdateOrder::Wait}},
    {"speculate", {.update = UpdateOrder::Speculate}},
};
constexpr size_t kNumFixed = std::size(kFixed);

/// Sums over the cases in which a fixed value fits.
struct Ratios {
  int num_cases = 0;
  double log_ratios = 0;
};
using AllRatios = std::array<Ratios, kNumFixed>;

/// nullopt if it does not fit.
std::optional<Candidate> chosen_with(const Fixed& fixed, const Gpt2& model, TrainerOptions options,
                                     const LargeCase& c) {
  options.schedule = fixed.request;
  try {
    const Preparation p = prepare(model, options, {.device_memory = c.device_bytes}, c.machine);
    return p.candidates[p.chosen];
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

/// The mappings of a step, and with kept ones. Returns whether the step takes no longer with these.
bool print_mappings(const Preparation& p, const Machine& machine) {
  const Simulation before = simulate(p.plan, p.trace, *p.layout, machine);
  const double start_s = steady_now_s();
  const Plan kept = with_kept_mappings(p.plan, before.ops).value_or(p.plan);
  const double took_s = steady_now_s() - start_s;
  fmt::print(" {:>8} {:>8} {:>8.1f} |", num_mappings(p.plan), num_mappings(kept), 1e3 * took_s);
  return simulate(kept, p.trace, *p.layout, machine).seconds <=
         before.seconds * (1 + kEqualSeconds);
}

bool run_large(const LargeCase& c, AllRatios& all) {
  Gpt2Config config = find_gpt2_preset(c.preset);
  if (c.num_layers > 0) config.num_layers = c.num_layers;
  const Gpt2 model(config, c.batch_size, config.max_positions, DType::BF16);
  const TrainerOptions options{.gradient_accumulation = c.accumulation,
                               .max_grad_norm = c.clip ? 1.0f : 0.0f};
  const double start_s = steady_now_s();
  const Preparation p = prepare(model, options, {.device_memory = c.device_bytes}, c.machine);
  const double choosing_s = steady_now_s() - start_s;
  const Candidate& chosen = p.candidates[p.chosen];
  fmt::print("{:<10} {:<20} {:>4} GiB {:>2}x{}x{} {:<4} {:<12} {:>11.6f} {:>6.3f} {:>7.3f} |",
             c.preset, c.machine_name, c.device_bytes >> 30, c.accumulation, c.batch_size,
             config.max_positions, c.clip ? "clip" : "", short_name(chosen), chosen.seconds,
             chosen.bound.seconds / chosen.seconds, choosing_s);
  const bool is_as_fast = print_mappings(p, c.machine);
  bool best = true;
  for (size_t i = 0; i < kNumFixed; ++i) {
    const auto other = chosen_with(kFixed[i], model, options, c);
    if (!other) {
      fmt::print(" {:>9}", "-");
      continue;
    }
    fmt::print(" {:>9.3f}", other->seconds / chosen.seconds);
    ++all[i].num_cases;
    all[i].log_ratios += std::log(other->seconds / chosen.seconds);
    best = best && !is_better(*other, chosen);
  }
  fmt::print("{}{}\n", best ? "" : "  NOT THE BEST", is_as_fast ? "" : "  KEPT IS SLOWER");
  std::fflush(stdout);
  return best && is_as_fast;
}

bool run_all_large() {
  fmt::print(
      "simulated; then the time with one fixed value of --recompute, --micro-batch-order, "
      "--activations or --update, divided by that of the choice; - where it does not fit\n"
      "{:<10} {:<20} {:>8} {:>9}     {:<4} {:<12} {:>11} {:>6} {:>7} | {:>8} {:>8} {:>8} |",
      "model", "machine", "memory", "step", "", "chosen", "predicted", "share", "chose s",
      "mappings", "kept", "kept ms");
  for (const Fixed& fixed : kFixed) fmt::print(" {:>9}", fixed.name);
  fmt::print("\n");
  bool good = true;
  AllRatios all;
  for (const LargeCase& c : large_cases()) good = run_large(c, all) && good;
  fmt::print("geometric mean of the cases in which it fits, and how many they are:\n");
  for (size_t i = 0; i < kNumFixed; ++i) {
    if (all[i].num_cases == 0) continue;
    fmt::print("  {:<9} {:>6.3f} x, {:>2} of {}\n", kFixed[i].name,
               std::exp(all[i].log_ratios / all[i].num_cases), all[i].num_cases,
               large_cases().size());
  }
  return good;
}

// ---- Small models, measured

/// Requests the order, the recomputation, the placement and the updates of a candidate. The planner
/// chooses the numbers.
ScheduleRequest by_hand(const Candidate& c) {
  const Schedule& s = c.schedule;
  return {.micro_batch_order = s.micro_batch_order,
          .recompute = s.recompute,
          .activations = s.activations,
          .update = s.update};
}

/// Settings whose predicted time is larger than this multiple of the choice's are not measured.
constexpr double kHopeless = 1.2;
constexpr size_t kChunkBytes = size_t{2} << 20;

/// A setting with its own trainer.
class Setting {
 public:
  Setting(const Model& model, Preparation prepared, const DeviceOptions& device)
      : prepared_(std::move(prepared)),
        device_(create_device(device)),
        trainer_(std::make_unique<Trainer>(model, *device_, prepared_)) {}

  double step(const RandomBatches& data) { return trainer_->step(data.batches(), 3e-5).step_s; }
  const Candidate& candidate() const { return prepared_.candidates[prepared_.chosen]; }
  uint64_t num_parameters() const { return prepared_.layout->num_model_parameters(); }

 private:
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
};
using Settings = std::vector<std::unique_ptr<Setting>>;

/// The candidates to measure, in their order: the choice, and the fastest other candidates below
/// the limit that fit in memory together.
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
  double error = 0;        ///< of the prediction for the choice
  double worst_error = 0;  ///< the largest of all settings
  double ratio = 1;        ///< measured: choice / best
  Tolerance tolerance = {};
};

/// A small case: the machine as it is now, and the settings that are measured.
class Small {
 public:
  Small(const SmallCase& c, const Gpt2& model)
      : case_(c),
        model_(model),
        data_(model.config().vocabulary, c.batch_size, c.length, c.accumulation) {
    if (c.emulated_flops_per_s > 0) {
      device_.emulate_compute = ComputeRates{.flops_per_s = c.emulated_flops_per_s};
    }
    machine_ = machine_rates(device_, DType::BF16, DType::BF16, {}).machine;
    plan();
  }

  Verdict measure(CoreRatesMeter& meter, size_t num_rounds) {
    for (auto& setting : settings_) setting->step(data_);
    const Rounds<Round> rounds(meter, num_rounds, [this] { return run_round(); });
    const Verdict verdict = judge(rounds);
    print(rounds, verdict);
    return verdict;
  }

 private:
  using Round = std::vector<double>;  // [setting] seconds of a step

  void plan() {
    const TrainerOptions options{.chunk_bytes = kChunkBytes,
                                 .gradient_accumulation = case_.accumulation,
                                 .max_grad_norm = case_.clip ? 1.0f : 0.0f};
    const Preparation all = prepare(model_, options, {});
    const size_t least = all.smallest_device_bytes;
    const auto more = static_cast<double>(all.full_device_bytes - least);
    budgets_.device_memory = device_.memory_bytes =
        least + static_cast<size_t>(case_.memory * more);
    if (case_.link > 0) {
      // Rates are rounded to MB/s, so that a slightly faster machine gets the same case.
      const double bytes = static_cast<double>(all.layout->space_bytes(Space::Weights));
      const double kernels_s = all.flops / machine_.flops_per_s;
      const double rate = std::max(1.0, std::round(bytes / (case_.link * kernels_s) / 1e6)) * 1e6;
      device_.load_bytes_per_s = device_.store_bytes_per_s = rate;
      machine_.load_bytes_per_s = machine_.store_bytes_per_s = rate;
    }
    add_settings(options);
  }

  void add_settings(const TrainerOptions& options) {
    const Preparation chosen = prepare(model_, options, budgets_, machine_);
    for (const size_t i : settings_to_measure(chosen)) {
      const Candidate& candidate = chosen.candidates[i];
      const bool is_choice = i == chosen.chosen;
      if (is_choice) choice_ = settings_.size();
      TrainerOptions requested = options;
      requested.schedule = by_hand(candidate);
      settings_.push_back(std::make_unique<Setting>(
          model_, is_choice ? chosen : prepare(model_, requested, budgets_, machine_), device_));
    }
  }

  /// Each round begins with another setting, because the first step after the measurement of rates
  /// is a little slower.
  Round run_round() {
    Round seconds(settings_.size());
    for (size_t i = 0; i < settings_.size(); ++i) {
      const size_t setting = (first_ + i) % settings_.size();
      seconds[setting] = settings_[setting]->step(data_);
    }
    ++first_;
    return seconds;
  }

  /// The time of the choice / the time of setting `i`, in the same round.
  double ratio(const Rounds<Round>& rounds, size_t i) const {
    return rounds.median_of([&](const Round& r) { return r[choice_] / r[i]; });
  }
  double measured_s(const Rounds<Round>& rounds, size_t i) const {
    return rounds.median_of([&](const Round& r) { return r[i]; });
  }

  Verdict judge(const Rounds<Round>& rounds) const {
    Verdict verdict{.tolerance = tolerance_of(settings_[0]->num_parameters(),
                                              device_.emulate_compute.has_value())};
    for (size_t i = 0; i < settings_.size(); ++i) {
      const double error = settings_[i]->candidate().seconds / measured_s(rounds, i) - 1;
      if (i == choice_) verdict.error = error;
      if (std::abs(error) > std::abs(verdict.worst_error)) verdict.worst_error = error;
      verdict.ratio = std::max(verdict.ratio, ratio(rounds, i));
    }
    return verdict;
  }

  void print(const Rounds<Round>& rounds, const Verdict& verdict) const {
    const SmallCase& c = case_;
    const Candidate& mine = settings_[choice_]->candidate();
    fmt::print(
        "{:<15} {}x{}x{:<4} {:<4} {:<8} {:>7.1f} {:>6} {:<14} {:>9.1f} {:>9.1f} {:>+7.1f} "
        "{:>+7.1f} "
        "{:>3.0f} {:>7.3f} |",
        c.preset, c.accumulation, c.batch_size, c.length, c.clip ? "clip" : "",
        device_.emulate_compute ? "emulated" : "real",
        static_cast<double>(*budgets_.device_memory) / (1 << 20),
        c.link > 0 ? fmt::format("{:.0f}", machine_.load_bytes_per_s / 1e6) : "none",
        short_name(mine), 1e3 * mine.seconds, 1e3 * measured_s(rounds, choice_),
        100 * verdict.error, 100 * verdict.worst_error, 100 * verdict.tolerance.error,
        verdict.ratio);
    for (size_t i = 0; i < settings_.size(); ++i) {
      const Candidate& other = settings_[i]->candidate();
      fmt::print(" {}={:.1f}/{:.1f} ({:.3f})", short_name(other), 1e3 * other.seconds,
                 1e3 * measured_s(rounds, i), ratio(rounds, i));
    }
    fmt::print(
        "; {}{}\n", rounds.text(),
        verdict.tolerance.allows(verdict.error) ? "" : "; the prediction is OUT OF TOLERANCE");
    std::fflush(stdout);
  }

  const SmallCase& case_;
  const Gpt2& model_;
  const RandomBatches data_;
  DeviceOptions device_;
  Machine machine_;
  Budgets budgets_;
  Settings settings_;
  size_t choice_ = 0;  // index of the choice among the settings
  size_t first_ = 0;   // setting of the next round
};

void run_small(std::span<const SmallCase> cases, size_t num_rounds) {
  fmt::print(
      "\n{:<15} {:<8} {:<4} {:<8} {:>7} {:>6} {:<14} {:>9} {:>9} {:>7} {:>7} {:>3} {:>7} | {}\n",
      "model", "step", "", "compute", "MiB", "MB/s", "chosen", "predicted", "measured", "off %",
      "worst %", "may", "x best",
      "ms, predicted/measured, of each setting (the choice against it)");
  CoreRatesMeter meter(num_usable_cores());
  Verdict most;
  size_t num_exceeded = 0;
  for (const SmallCase& c : cases) {
    const Gpt2 model(find_gpt2_preset(c.preset), c.batch_size, c.length, DType::BF16);
    const Verdict v = Small(c, model).measure(meter, num_rounds);
    most.error = std::max(most.error, std::abs(v.error));
    most.worst_error = std::max(most.worst_error, std::abs(v.worst_error));
    most.ratio = std::max(most.ratio, v.ratio);
    num_exceeded += !v.tolerance.allows(v.error);
  }
  fmt::print(
      "at most: the choice's prediction off by {:.1f} %, any setting's by {:.1f} %; the choice "
      "{:.3f} x the best\n"
      "the choice's prediction exceeds its tolerance in {} of {} cases\n",
      100 * most.error, 100 * most.worst_error, most.ratio, num_exceeded, cases.size());
}

struct Arguments {
  bool large = false, small = false;
  std::optional<size_t> one_case = {};
  size_t rounds = 9;
};

int run(const Arguments& a) {
  const bool all = !a.large && !a.small && !a.one_case;
  const bool good = !(all || a.large) || run_all_large();
  std::span<const SmallCase> cases = small_cases();
  if (a.one_case) cases = cases.subspan(std::min(cases.size() - 1, *a.one_case), 1);
  if (all || a.small || a.one_case) run_small(cases, a.rounds);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  ebb::bench::Arguments a;
  CLI::App app("Is what the planner chooses the fastest, and does a step take as long as it says?");
  auto* const large = app.add_flag("--large", a.large, "large models, simulated");
  auto* const small = app.add_flag("--small", a.small, "small models, measured");
  auto* const one_case = app.add_option("--case", a.one_case, "one of the small models");
  large->excludes(small)->excludes(one_case);
  small->excludes(one_case);
  app.add_option("--rounds", a.rounds, "how many rounds count")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return ebb::bench::exit_code_of("bench_choose", [&] { return ebb::bench::run(a); });
}
