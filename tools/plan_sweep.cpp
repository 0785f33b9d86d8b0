#include "tools/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr int kNumBudgets = 10;
constexpr int kNumDoublings = 7;
constexpr int kBarWidth = 30;

/// Rows compare tokens per second, relative to the bound by arithmetic.
class Rows {
 public:
  Rows(bool json, double most_tokens_per_s, const std::function<void(const std::string&)>& print)
      : json_(json), most_(most_tokens_per_s), print_(print) {
    if (!json_) {
      print_(fmt::format("{:>12} {:>10} {:>10} {:>10} {:<18} {:>7} {:>11} {:>11}\n", "device",
                         "tokens", "step s", "bound s", "by", "share", "moves", "tokens/s"));
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
    print_(fmt::format("{:>12} {:>10} {:>10.4g} {:>10.4g} {:<18} {:>5.1f} % {:>11} {:>11.5g} {}\n",
                       format_bytes(budget(step)), step.shape.num_tokens(), c.seconds,
                       c.bound.seconds, c.bound.bound_by, 100 * c.bound.seconds / c.seconds,
                       format_bytes(c.moved_bytes), step.tokens_per_second(),
                       std::string(bar, '#')));
  }

 private:
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

  static std::string json_line(const PlannedStep& step) {
    const Candidate& c = step.chosen();
    return json_text(nlohmann::ordered_json({{"device_memory", budget(step)},
                                             {"tokens_per_step", step.shape.num_tokens()},
                                             {"fits", true},
                                             {"predicted_seconds", c.seconds},
                                             {"bound_seconds", c.bound.seconds},
                                             {"bound_by", c.bound.bound_by},
                                             {"moved_bytes", c.moved_bytes},
                                             {"tokens_per_second", step.tokens_per_second()}})) +
           "\n";
  }

  bool json_;
  double most_;
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
  const Rows rows(request.json, tokens_at_compute_bound(largest), print);
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
  const Rows rows(request.json, tokens_at_compute_bound(first), print);
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
