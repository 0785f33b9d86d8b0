#include "tools/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/plan_report.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr int kNumBudgets = 10;
constexpr int kNumDoublings = 7;
constexpr int kBarWidth = 30;

/// Rows compare tokens per second, relative to the bound by arithmetic. If the rates of the machine
/// have two ends, a row also has the time and the tokens per second "at best".
class Rows {
 public:
  Rows(bool json, double most_tokens_per_s, const PlannedMachine& machine,
       const std::function<void(const std::string&)>& print)
      : json_(json), most_(most_tokens_per_s), machine_(machine), print_(print) {
    if (!json_) {
      print_(fmt::format("{:>12} {:>10} {:>10}{} {:>10} {:<18} {:>7} {:>11} {:>11}{}\n", "device",
                         "tokens", "step s", at_best(9, "at best"), "bound s", "by", "share",
                         "moves", "tokens/s", at_best(9, "at best")));
    }
  }

  /// Adds a row even if the plan does not fit, because a plan with another device budget needs
  /// another amount of host memory and may fit.
  void add(const TrainOptions& options, const PlanContext& context) const {
    try {
      add(plan_step_of(options, context));
    } catch (const PlanError&) {
      add_unfit(options);
    }
  }

  void add(const PlannedStep& step) const {
    const auto& [seconds, bound, num_simulated] = step.predicted;
    if (json_) return print_(json_line(step));
    const double share = std::min(1.0, step.tokens_per_second() / most_);
    const auto bar = static_cast<size_t>(std::lround(share * kBarWidth));
    const double best_s = step.optimistic_s;
    const double best_tokens = static_cast<double>(step.shape.num_tokens()) / best_s;
    print_(
        fmt::format("{:>12} {:>10} {:>10.4g}{} {:>10.4g} {:<18} {:>5.1f} % {:>11} {:>11.5g}{} {}\n",
                    format_bytes(budget(step)), step.shape.num_tokens(), seconds,
                    at_best(9, fmt::format("{:.4g}", best_s)), bound.seconds, bound.bound_by,
                    100 * bound.seconds / seconds, format_bytes(step.chosen().moved_bytes),
                    step.tokens_per_second(), at_best(9, fmt::format("{:.5g}", best_tokens)),
                    std::string(bar, '#')));
  }

 private:
  /// A cell of this width, or nothing if the rates of the machine have one end.
  std::string at_best(int width, std::string_view text) const {
    return machine_.optimistic ? fmt::format(" {:>{}}", text, width) : "";
  }

  static size_t budget(const PlannedStep& step) {
    return step.budgets.device_memory.value_or(step.prepared.ledger.total(Tier::Device));
  }

  void add_unfit(const TrainOptions& options) const {
    const BatchShape shape = batch_shape(options, model_source(options));
    if (json_) {
      nlohmann::ordered_json row{{"tokens_per_step", shape.num_tokens()}, {"fits", false}};
      if (options.device_memory) row["device_memory"] = *options.device_memory;
      return print_(json_text(row) + "\n");
    }
    const std::string budget = options.device_memory ? format_bytes(*options.device_memory) : "";
    print_(
        fmt::format("{:>12} {:>10} does not fit; `ebb plan` with this --device-memory and "
                    "--gradient-accumulation {} says why\n",
                    budget, shape.num_tokens(), options.gradient_accumulation));
  }

  std::string json_line(const PlannedStep& step) const {
    const auto& [seconds, bound, num_simulated] = step.predicted;
    const Speed speed = speed_of(step);
    return json_text(nlohmann::ordered_json({{"device_memory", budget(step)},
                                             {"tokens_per_step", step.shape.num_tokens()},
                                             {"fits", true},
                                             {"predicted_seconds", seconds},
                                             {"optimistic_seconds", step.optimistic_s},
                                             {"bound_seconds", bound.seconds},
                                             {"bound_by", bound.bound_by},
                                             {"moved_bytes", step.chosen().moved_bytes},
                                             {"tokens_per_second", speed.pessimistic},
                                             {"optimistic_tokens_per_second", speed.optimistic}})) +
           "\n";
  }

  bool json_;
  double most_;
  const PlannedMachine& machine_;
  const std::function<void(const std::string&)>& print_;
};

/// Tokens per second if only arithmetic took time.
double tokens_at_compute_bound(const PlannedStep& step) {
  return static_cast<double>(step.shape.num_tokens()) / step.chosen().bound.compute_s;
}

void sweep_budgets(const PlanRequest& request, const PlanContext& context,
                   const std::function<void(const std::string&)>& print) {
  TrainOptions options = request.options;
  options.device_memory = kUnlimitedBytes;
  const PlannedStep largest = plan_step_of(options, context);
  const auto least = static_cast<double>(largest.prepared.smallest_device_bytes);
  const auto most = static_cast<double>(largest.prepared.ledger.total(Tier::Device));
  const Rows rows(request.json, tokens_at_compute_bound(largest), context.machine, print);
  for (int i = 0; i < kNumBudgets; ++i) {
    const double budget =
        least * std::pow(most / least, static_cast<double>(i) / (kNumBudgets - 1));
    options.device_memory =
        std::max(largest.prepared.smallest_device_bytes, static_cast<size_t>(std::ceil(budget)));
    rows.add(options, context);
  }
}

void sweep_tokens(const PlanRequest& request, const PlanContext& context,
                  const std::function<void(const std::string&)>& print) {
  TrainOptions options = request.options;
  const PlannedStep first = plan_step_of(options, context);
  const Rows rows(request.json, tokens_at_compute_bound(first), context.machine, print);
  rows.add(first);
  for (int i = 0; i < kNumDoublings; ++i) {
    options.gradient_accumulation *= 2;
    rows.add(options, context);
  }
}

/// A row compares the tokens per second with those of one rank.
class RankRows {
 public:
  RankRows(bool json, const std::function<void(const std::string&)>& print)
      : json_(json), print_(print) {
    if (json_) return;
    print_(
        fmt::format("{:>5} {:>5} {:>6} {:>10} {:>10} {:>11} {:>8} {:>10} {:<18} {:>7} {:>12} "
                    "{:>12} {:>12}\n",
                    "ranks", "nodes", "groups", "tokens", "step s", "tokens/s", "speed-up",
                    "bound s", "by", "share", "each device", "host of each", "host of all"));
  }

  void add(const TrainOptions& options, const PlanContext& context) {
    try {
      add(plan_step_of(options, context));
    } catch (const PlanError&) {
      add_unfit(options);
    }
  }

 private:
  void add(const PlannedStep& step) {
    const auto& [seconds, bound, num_simulated] = step.predicted;
    const uint32_t num_ranks = step.num_ranks();
    if (num_ranks == 1) of_one_ = step.tokens_per_second();
    const size_t device_bytes = step.prepared.ledger.total(Tier::Device);
    const size_t host_bytes = step.bytes_of_all(Tier::Host);
    const size_t machine_bytes = step.bytes_of_machine(Tier::Host);
    const uint32_t groups = step.prepared.division.num_groups;
    if (json_) {
      nlohmann::ordered_json row{{"ranks", num_ranks},
                                 {"nodes", step.num_machines()},
                                 {"groups", groups},
                                 {"tokens_per_step", step.shape.num_tokens()},
                                 {"fits", true},
                                 {"predicted_seconds", seconds},
                                 {"optimistic_seconds", step.optimistic_s},
                                 {"bound_seconds", bound.seconds},
                                 {"bound_by", bound.bound_by},
                                 {"tokens_per_second", step.tokens_per_second()},
                                 {"device_bytes", device_bytes},
                                 {"host_bytes", host_bytes},
                                 {"machine_host_bytes", machine_bytes}};
      if (of_one_ > 0) row["speed_up"] = step.tokens_per_second() / of_one_;
      return print_(json_text(row) + "\n");
    }
    print_(fmt::format(
        "{:>5} {:>5} {:>6} {:>10} {:>10.4g} {:>11.5g} {:>8} {:>10.4g} {:<18} {:>5.1f} % {:>12} "
        "{:>12} {:>12}\n",
        num_ranks, step.num_machines(), groups, step.shape.num_tokens(), seconds,
        step.tokens_per_second(),
        of_one_ > 0 ? fmt::format("{:.2f} x", step.tokens_per_second() / of_one_) : "",
        bound.seconds, bound.bound_by, 100 * bound.seconds / seconds, format_bytes(device_bytes),
        format_bytes(machine_bytes), format_bytes(host_bytes)));
  }

  void add_unfit(const TrainOptions& options) const {
    const RankPlace place = planned_place(options);
    if (json_) {
      const nlohmann::ordered_json row{
          {"ranks", place.num_ranks}, {"nodes", place.num_machines}, {"fits", false}};
      return print_(json_text(row) + "\n");
    }
    print_(
        fmt::format("{:>5} {:>5} does not fit; `ebb plan` with --ranks {}{} and "
                    "--gradient-accumulation {} says why\n",
                    place.num_ranks, place.num_machines, place.num_ranks,
                    place.num_machines > 1 ? fmt::format(" --nodes {}", place.num_machines) : "",
                    options.gradient_accumulation));
  }

  bool json_;
  const std::function<void(const std::string&)>& print_;
  double of_one_ = 0;  // tokens per second of one rank; 0: it does not fit
};

/// 1, 2, 4, ... below `most`, and `most`.
std::vector<uint64_t> doublings(uint64_t most) {
  std::vector<uint64_t> numbers;
  for (uint64_t n = 1; n < most; n *= 2) numbers.push_back(n);
  numbers.push_back(most);
  return numbers;
}

void sweep_ranks(const PlanRequest& request, const PlanContext& context,
                 const std::function<void(const std::string&)>& print) {
  const uint64_t of_machine = most_ranks(context.machine), nodes = request.options.nodes;
  if (of_machine * nodes == 1) {
    throw ConfigError(fmt::format(
        "--sweep ranks: the machine '{}' has one device; rtx4090-x4 and h100-x8 have several, and "
        "so has a machine file with `devices`; or give --nodes",
        context.machine.name));
  }
  RankRows rows(request.json, print);
  const auto add = [&](uint64_t num_ranks, uint64_t num_machines) {
    TrainOptions options = request.options;
    options.ranks = num_ranks;
    options.nodes = num_machines;
    options.gradient_accumulation *= num_ranks;
    if (!options.groups && num_ranks > 1) options.groups = num_ranks;
    rows.add(options, context);
  };
  for (const uint64_t num_ranks : doublings(of_machine)) add(num_ranks, 1);
  for (const uint64_t machines : doublings(nodes)) {
    if (machines > 1) add(machines * of_machine, machines);
  }
}

}  // namespace

void sweep_plans(const PlanRequest& request, const PlanContext& context,
                 const std::function<void(const std::string&)>& print) {
  if (request.sweep == Sweep::DeviceMemory) return sweep_budgets(request, context, print);
  if (request.sweep == Sweep::Ranks) return sweep_ranks(request, context, print);
  sweep_tokens(request, context, print);
}

}  // namespace ebb
