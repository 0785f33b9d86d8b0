#include "scheduler/choose.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "scheduler/prepare.h"

namespace ebb {
namespace {

constexpr MicroBatchOrder kOrders[] = {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical};
constexpr Recompute kRecomputes[] = {Recompute::None, Recompute::Block, Recompute::Sqrt};
constexpr ActivationPlacement kPlacements[] = {ActivationPlacement::Device,
                                               ActivationPlacement::Offload};
constexpr UpdateOrder kUpdates[] = {UpdateOrder::Overlap, UpdateOrder::Wait};

constexpr double kCarriedShares[] = {0, 0.25, 0.4, 0.6};

/// Times nearer than this are the same sums in another order.
constexpr double kRounding = 1e-9;

template <class T, size_t N>
std::vector<T> values_of(T told, const T (&all)[N]) {
  if (told != T::Auto) return {told};
  return std::vector<T>(std::begin(all), std::end(all));
}

std::string too_large_for_host(const Ledger& ledger, size_t budget) {
  const size_t needed = ledger.total(Tier::Host);
  return fmt::format(
      "the plan does not fit: host memory {} ({} bytes), the smallest that works is {} ({} "
      "bytes):\n{}"
      "try a smaller model, or --clip 0 so that gradients need not wait for their norm",
      format_bytes(budget), budget, format_bytes(needed), needed, ledger.table());
}

std::string too_large_together(const Preparation& ground, const Ledger& ledger, size_t budget) {
  const size_t home = ledger.total(Tier::Host);
  const size_t device = ledger.total(Tier::Device);
  return fmt::format(
      "the plan does not fit: it needs {} at home and {} on the host device, together {}, and this "
      "machine can give {}; with the smallest --device-memory that works, {}, it would need {}\n{}"
      "try that, a smaller model, or a smaller --micro-batch-size",
      format_bytes(home), format_bytes(device), format_bytes(home + device), format_bytes(budget),
      format_bytes(ground.smallest_device_bytes), format_bytes(home + ground.smallest_device_bytes),
      ledger.table());
}

/// Goes through the candidates and keeps the best.
class Choice {
 public:
  Choice(const Budgets& budgets, const Machine& machine) : budgets_(budgets), machine_(machine) {}

  /// A ground with every way to update that is asked for.
  void consider(Preparation ground, const std::vector<UpdateOrder>& updates) {
    if (smallest_device_bytes_ == 0 || ground.smallest_device_bytes < smallest_device_bytes_) {
      smallest_device_bytes_ = ground.smallest_device_bytes;
    }
    std::optional<std::pair<UpdateOrder, Plan>> better;
    for (const UpdateOrder update : updates) {
      ground.options.update = update;
      Candidate candidate = describe(ground);
      Plan plan;
      if (candidate.why_not.empty()) {
        plan = plan_step(ground);
        judge(candidate, ground, plan);
      }
      candidates_.push_back(std::move(candidate));
      if (!candidates_.back().why_not.empty() || !is_best(candidates_.back())) continue;
      chosen_ = candidates_.size() - 1;
      better.emplace(update, std::move(plan));
    }
    if (!better) return;
    ground.options.update = better->first;
    best_ = {std::move(ground), std::move(better->second)};
  }

  Preparation finish() {
    if (!best_) refuse();
    refine();
    Preparation prepared = std::move(best_->first);
    complete(prepared, std::move(best_->second));
    prepared.candidates = std::move(candidates_);
    prepared.chosen = *chosen_;
    prepared.smallest_device_bytes = smallest_device_bytes_;
    return prepared;
  }

 private:
  /// What is known without a plan.
  Candidate describe(const Preparation& ground) {
    Candidate c{.order = ground.options.micro_batch_order,
                .recompute = ground.options.recompute,
                .activations = ground.options.activations,
                .update = ground.options.update,
                .flops = ground.flops,
                .smallest_device_bytes = ground.smallest_device_bytes};
    if (ground.num_blocks >= ground.smallest_blocks) return c;
    c.why_not = fmt::format("needs {} on the device", format_bytes(c.smallest_device_bytes));
    if (!nearest_ || ground.smallest_device_bytes < nearest_->smallest_device_bytes) {
      nearest_ = ground;
    }
    return c;
  }

  void judge(Candidate& c, const Preparation& ground, const Plan& plan) {
    const Ledger ledger = ledger_with(ground, plan);
    c.device_bytes = ledger.total(Tier::Device);
    const size_t home = ledger.total(Tier::Host);
    if (budgets_.host_memory && home > *budgets_.host_memory) {
      c.why_not = fmt::format("needs {} at home", format_bytes(home));
      too_large_at_home_ = too_large_for_host(ledger, *budgets_.host_memory);
    } else if (budgets_.total_memory && home + c.device_bytes > *budgets_.total_memory) {
      c.why_not = fmt::format("needs {} in all", format_bytes(home + c.device_bytes));
      too_large_at_home_ = too_large_together(ground, ledger, *budgets_.total_memory);
    }
    if (!c.why_not.empty()) return;
    c.moved_bytes = plan.loaded_bytes + plan.stored_bytes;
    c.seconds = simulate(plan, ground.trace, *ground.layout, machine_).seconds;
    c.bound =
        lower_bound(ground.trace, *ground.layout, plan, machine_, ground.options.max_grad_norm > 0);
  }

  /// What is left open when the settings are chosen. Only steps without clipping hold weights that
  /// home updates, or have a share of updates to carry.
  void refine() {
    TrainerOptions& options = best_->first.options;
    if (!options.device_updates) {
      const uint32_t most = most_device_updates(best_->first);
      for (uint32_t num = most; num > most / 8; num /= 2) {
        try_instead([&] { options.device_updates = num; });
      }
    }
    if (options.max_grad_norm > 0) return;
    // Blocks that no moment needs at once may hold weights: more of them, or fewer.
    const uint32_t most = best_->first.num_blocks - best_->first.smallest_blocks;
    if (!options.held_chunks) {
      for (uint32_t num = most; num > most / 8; num /= 2) {
        try_instead([&] { options.held_chunks = num; });
      }
    }
    // Those whose updates are carried are not held.
    if (!options.carried_share && options.update == UpdateOrder::Overlap) {
      for (const double share : kCarriedShares) {
        try_instead([&] { options.carried_share = share; });
      }
    }
  }

  template <class Change>
  void try_instead(const Change& change) {
    auto& [ground, plan] = *best_;
    const TrainerOptions before = ground.options;
    change();
    Plan other = plan_step(ground);
    Candidate candidate = candidates_[*chosen_];
    judge(candidate, ground, other);
    candidate.carried_share = ground.options.carried_share.value_or(kCarriedShare);
    candidate.num_device_updates = static_cast<uint32_t>(other.device_updates.size());
    candidate.num_held =
        static_cast<uint32_t>(other.held_at_end.size()) - candidate.num_device_updates;
    if (candidate.why_not.empty() && is_better(candidate, candidates_[*chosen_])) {
      plan = std::move(other);
      candidates_[*chosen_] = candidate;
    } else {
      ground.options = before;
    }
  }

  bool is_best(const Candidate& c) const { return !chosen_ || is_better(c, candidates_[*chosen_]); }

  [[noreturn]] void refuse() const {
    if (!too_large_at_home_.empty()) throw PlanError(too_large_at_home_);
    throw_too_large_for_device(*nearest_, budgets_.device_memory.value_or(0));
  }

  const Budgets& budgets_;
  const Machine& machine_;
  std::vector<Candidate> candidates_;
  std::optional<size_t> chosen_;
  std::optional<std::pair<Preparation, Plan>> best_;
  size_t smallest_device_bytes_ = 0;
  std::optional<Preparation> nearest_;  // of those too large for the device
  std::string too_large_at_home_;
};

}  // namespace

std::vector<TrainerOptions> settings_to_try(const TrainerOptions& options, const Budgets& budgets) {
  const bool one_order = options.gradient_accumulation == 1 || !budgets.device_memory;
  std::vector<ActivationPlacement> placements = values_of(options.activations, kPlacements);
  if (!budgets.device_memory) placements.resize(1);
  std::vector<TrainerOptions> settings;
  for (const MicroBatchOrder order : values_of(options.micro_batch_order, kOrders)) {
    const bool redundant =
        options.micro_batch_order == MicroBatchOrder::Auto && one_order && order != kOrders[0];
    if (redundant) continue;
    for (const Recompute recompute : values_of(options.recompute, kRecomputes)) {
      for (const ActivationPlacement placement : placements) {
        settings.push_back(options);
        settings.back().micro_batch_order = order;
        settings.back().recompute = recompute;
        settings.back().activations = placement;
      }
    }
  }
  return settings;
}

std::vector<UpdateOrder> update_orders(const TrainerOptions& options) {
  return values_of(options.update, kUpdates);
}

bool is_better(const Candidate& a, const Candidate& b) {
  if (a.seconds < b.seconds * (1 - kRounding)) return true;
  if (a.seconds > b.seconds * (1 + kRounding)) return false;
  return std::pair(a.moved_bytes, a.flops) < std::pair(b.moved_bytes, b.flops);
}

Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine) {
  Choice choice(budgets, machine);
  const std::vector<TrainerOptions> settings = settings_to_try(options, budgets);
  for (size_t i = 0; i < settings.size(); ++i) {
    try {
      choice.consider(prepare_ground(model, settings[i], budgets), update_orders(options));
    } catch (const ConfigError&) {
      // A model may use values in a way that only the simplest setting allows.
      if (i == 0) throw;
    }
  }
  return choice.finish();
}

std::string name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::None:
      return "none";
    case Recompute::Block:
      return "block";
    case Recompute::Sqrt:
      return "sqrt";
    case Recompute::Auto:
      return "auto";
    default:
      return fmt::format("{} blocks", static_cast<uint32_t>(recompute));
  }
}

std::string_view name_of(ActivationPlacement placement) {
  static constexpr std::string_view kNames[] = {"device", "offload", "auto"};
  return kNames[static_cast<int>(placement)];
}

std::string_view name_of(MicroBatchOrder order) {
  static constexpr std::string_view kNames[] = {"horizontal", "vertical", "auto"};
  return kNames[static_cast<int>(order)];
}

std::string_view name_of(UpdateOrder update) {
  static constexpr std::string_view kNames[] = {"wait", "overlap", "auto"};
  return kNames[static_cast<int>(update)];
}

std::string why_chosen(const Preparation& prepared) {
  const Candidate& chosen = prepared.candidates[prepared.chosen];
  const Candidate* next = nullptr;
  for (const Candidate& c : prepared.candidates) {
    if (&c == &chosen || !c.why_not.empty()) continue;
    if (next == nullptr || is_better(c, *next)) next = &c;
  }
  if (prepared.candidates.size() == 1) return "as asked for";
  if (next == nullptr) return "the only one that fits";
  if (chosen.seconds < next->seconds * (1 - kRounding)) {
    return fmt::format("fastest, the next takes {:.3f} x", next->seconds / chosen.seconds);
  }
  const std::string_view among = chosen.seconds > 0 ? "as fast as another" : "no rates are known";
  if (chosen.moved_bytes < next->moved_bytes) return fmt::format("{}; moves less", among);
  if (chosen.flops < next->flops) return fmt::format("{}; computes less", among);
  return fmt::format("{}; the simpler", among);
}

}  // namespace ebb
