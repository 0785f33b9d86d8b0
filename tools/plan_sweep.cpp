#include "tools/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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
    const Candidate& c = step.chosen();
    if (json_) return print_(json_line(step));
    const double share = std::min(1.0, step.tokens_per_second() / most_);
    const auto bar = static_cast<size_t>(std::lround(share * kBarWidth));
    const double best_s = optimistic_seconds(step, machine_);
    const double best_tokens = static_cast<double>(step.shape.num_tokens()) / best_s;
    print_(fmt::format(
        "{:>12} {:>10} {:>10.4g}{} {:>10.4g} {:<18} {:>5.1f} % {:>11} {:>11.5g}{} {}\n",
        format_bytes(budget(step)), step.shape.num_tokens(), c.seconds,
        at_best(9, fmt::format("{:.4g}", best_s)), c.bound.seconds, c.bound.bound_by,
        100 * c.bound.seconds / c.seconds, format_bytes(c.moved_bytes), step.tokens_per_second(),
        at_best(9, fmt::format("{:.5g}", best_tokens)), std::string(bar, '#')));
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
    const Candidate& c = step.chosen();
    const Speed speed = speed_of(step, machine_);
    return json_text(
               nlohmann::ordered_json({{"device_memory", budget(step)},
                                       {"tokens_per_step", step.shape.num_tokens()},
                                       {"fits", true},
                                       {"predicted_seconds", c.seconds},
                                       {"optimistic_seconds", optimistic_seconds(step, machine_)},
                                       {"bound_seconds", c.bound.seconds},
                                       {"bound_by", c.bound.bound_by},
                                       {"moved_bytes", c.moved_bytes},
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

}  // namespace

void sweep_plans(const PlanRequest& request, const PlanContext& context,
                 const std::function<void(const std::string&)>& print) {
  if (request.sweep == Sweep::DeviceMemory) return sweep_budgets(request, context, print);
  sweep_tokens(request, context, print);
}

}  // namespace ebb
