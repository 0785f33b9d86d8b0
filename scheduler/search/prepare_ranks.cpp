#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

#include "scheduler/search/choose.h"
#include "scheduler/search/prepare.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

/// Throws ConfigError unless each group has a micro-batch and each rank a group.
void check_groups(const TrainerOptions& options, uint32_t num_ranks) {
  const uint32_t count = options.gradient_accumulation, groups = options.groups.value_or(count);
  if (count == 0) {
    throw ConfigError("`gradient_accumulation` 0: a step has at least one micro-batch");
  }
  if (groups == 0 || groups > count) {
    throw ConfigError(
        fmt::format("`groups` {}: allowed is 1 to {}, the number of micro-batches "
                    "(`gradient_accumulation`)",
                    groups, count));
  }
  if (groups >= num_ranks) return;
  const uint32_t enough = (num_ranks + count - 1) / count * count;
  throw ConfigError(
      options.groups && count >= num_ranks
          ? fmt::format("`groups` {} for {} ranks: each rank computes at least one group; try "
                        "`groups` {}",
                        groups, num_ranks, num_ranks)
          : fmt::format("{} micro-batches for {} ranks: each rank computes at least one; try "
                        "`gradient_accumulation` {}",
                        count, num_ranks, enough));
}

/// The rank with the most micro-batches.
uint32_t busiest_rank(const Division& division) {
  uint32_t busiest = 0, most = 0;
  for (uint32_t rank = 0; rank < division.place.num_ranks; ++rank) {
    const uint32_t count = share_of(division, rank).micro_batches.count;
    if (count > most) busiest = rank;
    most = std::max(most, count);
  }
  return busiest;
}

/// Adds the plans of a rank for the schedule of the preparation of another one. Throws if the rank
/// needs more host memory.
void complete_as(Preparation& p, const Preparation& chosen, const Budgets& budgets) {
  complete(p, plan_step(p, chosen.schedule));
  const size_t host_bytes = p.ledger.total(Tier::Host);
  if (budgets.host_memory && host_bytes > *budgets.host_memory) {
    throw HomeTooSmall(too_large_for_host(p.ledger, *budgets.host_memory), host_bytes);
  }
  p.candidates = chosen.candidates;
  p.chosen = chosen.chosen;
  p.smallest_device_bytes = chosen.smallest_device_bytes;
  p.full_device_bytes = chosen.full_device_bytes;
  p.layers = chosen.layers;
}

/// All ranks have the same schedule: the best one of the busiest rank, on its part of the machine.
Preparation prepare_rank(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                         const Machine& machine) {
  Budgets of_busiest = budgets;
  of_busiest.place.rank = busiest_rank(division_of(options, budgets.place));
  Preparation chosen = choose(model, options, of_busiest,
                              machine_of_rank(machine, budgets.place.ranks_per_machine()));
  if (of_busiest.place == budgets.place) return chosen;
  Preparation p = prepare_context(model, options, chosen.schedule, budgets,
                                  observe_layers(model, options, budgets));
  complete_as(p, chosen, budgets);
  return p;
}

}  // namespace

std::vector<Preparation> prepare_others(const Preparation& chosen, const Model& model,
                                        const Budgets& budgets) {
  const TrainerOptions& options = chosen.options;
  const std::vector<ObservedLayer> layers = observe_layers(model, options, budgets);
  std::vector<Preparation> others;
  Budgets of_rank = budgets;
  const RankPlace& place = chosen.division.place;
  // One dry run after the other, because a model need not be thread-safe.
  of_rank.place = place;
  for (uint32_t rank = 0; rank < place.num_ranks; ++rank) {
    of_rank.place.rank = rank;
    if (rank == place.rank) continue;
    others.push_back(prepare_context(model, options, chosen.schedule, of_rank, layers));
  }
  ThreadTeam team(num_usable_cores());
  std::vector<std::exception_ptr> failed(others.size());
  team.for_each(std::ssize(others), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      complete_as(others[at], chosen, budgets);
    } catch (...) {
      failed[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : failed) {
    if (error) std::rethrow_exception(error);
  }
  return others;
}

StepPrediction predict_step(const Preparation& prepared, std::span<const Preparation> others,
                            const Machine& machine) {
  std::vector<const Preparation*> ranks;
  for (const Preparation& p : others) ranks.push_back(&p);
  ranks.insert(ranks.begin() + prepared.division.place.rank, &prepared);
  std::vector<RankStep> steps;
  for (const Preparation* const p : ranks) steps.push_back({p->plan, p->trace, *p->layout});
  StepPrediction predicted;
  for (const Simulation& s : simulate_ranks(steps, machine)) {
    predicted.seconds = std::max(predicted.seconds, s.seconds);
  }
  predicted.bound = lower_bound(steps, machine, updates_after_norm(prepared.options));
  return predicted;
}

Preparation prepare(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                    const Machine& machine) {
  check_groups(options, budgets.place.num_ranks);
  const std::optional<RecomputeRequest>& recompute = options.schedule.recompute;
  const auto* const layers = recompute ? std::get_if<Recompute>(&*recompute) : nullptr;
  if (layers != nullptr && layers->layers_at_once == 0) {
    throw ConfigError("Recompute::layers_at_once is 0: 1 or more layers run again at once");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw ConfigError(
        fmt::format("`dropout` {:g}: allowed is a number from 0 to below 1", options.dropout));
  }
  const uint32_t scale = options.initial_loss_scale;
  if (!std::has_single_bit(scale) || scale > kLargestLossScale) {
    throw ConfigError(fmt::format("an initial loss scale of {}: allowed is a power of two up to {}",
                                  scale, kLargestLossScale));
  }
  for (const InputSpec& spec : model.inputs()) {
    if (!spec.persistent) continue;
    throw ConfigError(fmt::format(
        "input '{}' is persistent: only inference has persistent inputs, not training", spec.name));
  }
  return prepare_rank(model, options, budgets, machine);
}

}  // namespace ebb
