#include "scheduler/search/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

/// How many layers of the model the tape recomputes (TapeOptions::recomputed_of).
uint32_t recomputed_layers(const Preparation& context) {
  const uint32_t all = context.num_layers;
  const uint32_t num = std::min(all, context.options.recomputed_layers.value_or(UINT32_MAX));
  const uint32_t of = std::min(all, context.options.recomputed_of.value_or(UINT32_MAX));
  return of == 0 ? 0 : all / of * num + std::min(num, all % of);
}

}  // namespace

bool comes_first(const PlannedCandidate& a, const PlannedCandidate& b) {
  if (is_better(a.candidate, b.candidate)) return true;
  if (is_better(b.candidate, a.candidate)) return false;
  return std::pair(a.setting, a.row) < std::pair(b.setting, b.row);
}

std::string Evaluator::evaluate(PlannedCandidate& candidate) const {
  const Preparation& context = *candidate.context;
  const Plan& plan = candidate.plan;
  Candidate& c = candidate.candidate;
  const Ledger ledger = ledger_with(context, plan);
  c.device_bytes = ledger.total(Tier::Device);
  const size_t home = c.host_bytes = ledger.total(Tier::Host);
  if (budgets_.host_memory && home > *budgets_.host_memory) {
    c.why_not = fmt::format("needs {} of host memory", format_bytes(home));
    return too_large_for_host(ledger, *budgets_.host_memory);
  }
  if (budgets_.total_memory && home + c.device_bytes > *budgets_.total_memory) {
    c.why_not = fmt::format("needs {} in all", format_bytes(home + c.device_bytes));
    return too_large_together(context, ledger, *budgets_.total_memory);
  }
  c.update = candidate.options.update;
  c.recomputed_layers = recomputed_layers(context);
  c.recomputed_of = context.options.recomputed_of.value_or(0);
  c.flops = context.flops;
  c.device_updates = plan.count(&ChunkRecord::is_on_device);
  c.resident_chunks = plan.count(&ChunkRecord::ends_on_device) - c.device_updates;
  c.speculated_chunks = plan.count(&ChunkRecord::is_speculative);
  c.moved_bytes = plan.loaded_bytes + plan.stored_bytes;
  c.seconds = simulate(plan, context.trace, *context.layout, machine_).seconds;
  return {};
}

void Evaluator::bound(PlannedCandidate& c) const {
  const Preparation& context = *c.context;
  c.candidate.bound = lower_bound(context.trace, *context.layout, c.plan, machine_,
                                  updates_after_norm(context.options));
}

bool Evaluator::plans(PlannedCandidate& c) const {
  c.plan = plan_step(*c.context, c.options);
  return evaluate(c).empty();
}

void Evaluator::take(PlannedCandidate other, PlannedCandidate& c) const {
  c = std::move(other);
  bound(c);
}

bool Evaluator::replaces(PlannedCandidate other, PlannedCandidate& c) const {
  if (std::ranges::find(other.no_better, other.options) != other.no_better.end()) return false;
  if (!plans(other) || !is_better(other.candidate, c.candidate)) {
    c.no_better.push_back(std::move(other.options));
    return false;
  }
  take(std::move(other), c);
  return true;
}

}  // namespace ebb
