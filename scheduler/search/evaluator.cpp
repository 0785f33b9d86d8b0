#include "scheduler/search/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

// A step that speculates must be faster by this factor. If every step were clipped, speculation
// would make steps slower by less than that (docs/undo.md).
constexpr double kWorthOfSpeculation = 1.03;

/// The time by which candidates are compared.
double compared_seconds(const Candidate& c) {
  return c.schedule.update == UpdateOrder::Speculate ? kWorthOfSpeculation * c.seconds : c.seconds;
}

}  // namespace

bool is_better(const Candidate& a, const Candidate& b) {
  const double a_s = compared_seconds(a), b_s = compared_seconds(b);
  if (a_s < b_s * (1 - kEqualSeconds)) return true;
  if (a_s > b_s * (1 + kEqualSeconds)) return false;
  return std::pair(a.moved_bytes, a.flops) < std::pair(b.moved_bytes, b.flops);
}

bool comes_first(const PlannedCandidate& a, const PlannedCandidate& b) {
  if (is_better(a.candidate, b.candidate)) return true;
  if (is_better(b.candidate, a.candidate)) return false;
  return std::pair(a.schedule_index, a.row) < std::pair(b.schedule_index, b.row);
}

std::string Evaluator::evaluate(PlannedCandidate& candidate) const {
  const Preparation& context = *candidate.context;
  const Plan& plan = candidate.plan;
  Candidate& c = candidate.candidate;
  c.why_not.clear();
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
  c.schedule = schedule_of(plan, candidate.asked);
  c.flops = context.flops;
  c.moved_bytes = plan.copied_bytes() - plan.gathered_bytes;
  c.seconds = simulate(plan, context.trace, *context.layout, machine_).seconds;
  return {};
}

void Evaluator::bound(PlannedCandidate& c) const {
  const Preparation& context = *c.context;
  c.candidate.bound = lower_bound(context.trace, *context.layout, c.plan, machine_,
                                  updates_after_norm(context.options));
}

bool Evaluator::plans(PlannedCandidate& c) {
  c.plan = plan_step(*c.context, c.asked);
  const bool fits = evaluate(c).empty();
  std::lock_guard lock(results_mutex_);
  results_.emplace(c.asked, c.candidate);
  return fits;
}

const Candidate* Evaluator::result_of(const Schedule& asked) const {
  std::lock_guard lock(results_mutex_);
  const auto found = results_.find(asked);
  return found == results_.end() ? nullptr : &found->second;
}

void Evaluator::take(PlannedCandidate other, PlannedCandidate& c) const {
  c = std::move(other);
  bound(c);
}

bool Evaluator::replaces(PlannedCandidate other, PlannedCandidate& c) {
  const auto is_better_than_c = [&c](const Candidate& o) { return is_better(o, c.candidate); };
  if (!plans_accepted(other, is_better_than_c)) return false;
  take(std::move(other), c);
  return true;
}

}  // namespace ebb
