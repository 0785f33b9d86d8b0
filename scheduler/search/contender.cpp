#include "scheduler/search/contender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

/// Of the model's blocks, where they are recomputed.
uint32_t num_recomputed(const Preparation& ground) {
  const uint32_t all = ground.num_model_blocks;
  const uint32_t num = std::min(all, ground.options.recomputed_blocks.value_or(UINT32_MAX));
  const uint32_t of = std::min(all, ground.options.recomputed_of.value_or(UINT32_MAX));
  return of == 0 ? 0 : all / of * num + std::min(num, all % of);
}

}  // namespace

bool comes_first(const Contender& a, const Contender& b) {
  if (is_better(a.candidate, b.candidate)) return true;
  if (is_better(b.candidate, a.candidate)) return false;
  return std::pair(a.setting, a.row) < std::pair(b.setting, b.row);
}

std::string Judge::judge(Contender& contender) const {
  const Preparation& ground = *contender.ground;
  const Plan& plan = contender.plan;
  Candidate& c = contender.candidate;
  const Ledger ledger = ledger_with(ground, plan);
  c.device_bytes = ledger.total(Tier::Device);
  const size_t home = c.host_bytes = ledger.total(Tier::Host);
  if (budgets_.host_memory && home > *budgets_.host_memory) {
    c.why_not = fmt::format("needs {} at home", format_bytes(home));
    return too_large_for_host(ledger, *budgets_.host_memory);
  }
  if (budgets_.total_memory && home + c.device_bytes > *budgets_.total_memory) {
    c.why_not = fmt::format("needs {} in all", format_bytes(home + c.device_bytes));
    return too_large_together(ground, ledger, *budgets_.total_memory);
  }
  c.update = contender.options.update;
  c.recomputed_blocks = num_recomputed(ground);
  c.recomputed_of = ground.options.recomputed_of.value_or(0);
  c.flops = ground.flops;
  c.num_device_updates = static_cast<uint32_t>(plan.device_updates.size());
  c.num_held = static_cast<uint32_t>(plan.held_at_end.size()) - c.num_device_updates;
  c.num_speculated = static_cast<uint32_t>(plan.speculated.size());
  c.moved_bytes = plan.loaded_bytes + plan.stored_bytes;
  c.seconds = simulate(plan, ground.trace, *ground.layout, machine_).seconds;
  return {};
}

void Judge::bound(Contender& c) const {
  const Preparation& ground = *c.ground;
  c.candidate.bound = lower_bound(ground.trace, *ground.layout, c.plan, machine_,
                                  updates_after_norm(ground.options));
}

bool Judge::plans(Contender& c) const {
  c.plan = plan_step(*c.ground, c.options);
  return judge(c).empty();
}

void Judge::take(Contender other, Contender& c) const {
  c = std::move(other);
  bound(c);
}

bool Judge::replaces(Contender other, Contender& c) const {
  if (std::ranges::find(other.no_better, other.options) != other.no_better.end()) return false;
  if (!plans(other) || !is_better(other.candidate, c.candidate)) {
    c.no_better.push_back(std::move(other.options));
    return false;
  }
  take(std::move(other), c);
  return true;
}

}  // namespace ebb
