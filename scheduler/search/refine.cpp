#include "scheduler/search/refine.h"

#include <algorithm>
#include <utility>

namespace ebb {
namespace {

/// A search changes a number in steps of 1/2, 1/4, ... of its maximum. These are the denominators
/// of the first and of the last step.
constexpr uint32_t kHalf = 2, kQuarter = 4, kEighth = 8, kFine = 16, kFinest = 64;
/// Plans with at most so many operations are short. Longer plans have fewer steps of a search,
/// because planning them again takes seconds.
constexpr size_t kMostOperationsOfShort = 150'000;

bool is_short(const PlannedCandidate& c) { return c.plan.ops.size() <= kMostOperationsOfShort; }

PlannedCandidate with(const PlannedCandidate& c, const Setting& setting, uint32_t value) {
  return changed(c, [&](Schedule& schedule) { setting.set(value, schedule); });
}

}  // namespace

Refinement::Refinement(const TrainerOptions& requested, Evaluator& evaluator, RunDry run_dry,
                       double least_s)
    : requested_(requested),
      evaluator_(evaluator),
      run_dry_(std::move(run_dry)),
      least_s_(least_s) {}

std::optional<PlannedCandidate> Refinement::speculative(const PlannedCandidate& c) const {
  if (!is_short(c)) return std::nullopt;
  for (const Setting& s : settings(c, SearchKind::Steps)) {
    if (!s.adds_candidate) continue;
    PlannedCandidate speculating = c;
    if (try_value(speculating, s, s.most)) return speculating;
  }
  return std::nullopt;
}

void Refinement::refine(PlannedCandidate& c) const {
  for (const Setting& s : settings(c, SearchKind::Fewest)) takes(c, s, s.most);
  if (may_win(c)) search(c, SearchKind::Steps, kHalf, kQuarter);
}

bool Refinement::may_change_trace(const PlannedCandidate& c) const {
  return !settings(c, SearchKind::Traces).empty();
}

void Refinement::change_trace(PlannedCandidate& c) const {
  search(c, SearchKind::Traces, kHalf, kEighth);
}

void Refinement::refine_finely(PlannedCandidate& c) const {
  if (!may_win(c)) return;
  search(c, SearchKind::Steps, kQuarter, is_short(c) ? kFinest : kFine);
  if (is_short(c) && may_change_trace(c)) {
    search(c, SearchKind::Traces, kQuarter, kFinest);
    search(c, SearchKind::Steps, kEighth, kFinest);
  }
  for (const Setting& s : settings(c, SearchKind::Fewest)) take_fewest(c, s);
}

std::vector<Setting> Refinement::settings(const PlannedCandidate& c, SearchKind kind) const {
  std::vector<Setting> settings = settings_of(requested_, *c.context, c.candidate.schedule);
  std::erase_if(settings, [&](const Setting& s) { return s.kind != kind; });
  return settings;
}

// No candidate can be the fastest if its kernels alone take longer than a whole step of another
// one. Fewer recomputed layers, which would shorten its kernels, are tried all the same.
bool Refinement::may_win(const PlannedCandidate& c) const {
  return c.candidate.bound.compute_s <= least_s_ * (1 + kEqualSeconds);
}

void Refinement::search(PlannedCandidate& c, SearchKind kind, uint32_t from, uint32_t to) const {
  for (uint32_t part = from; part <= to; part *= 2) {
    for (const Setting& s : settings(c, kind)) try_step(c, s, part);
  }
}

void Refinement::try_step(PlannedCandidate& c, const Setting& setting, uint32_t part) const {
  const uint32_t most = setting.most, now = setting.now(c.candidate.schedule);
  const bool is_too_small = part > kHalf && part >= 2 * most;
  if (most == 0 || is_too_small) return;
  const uint32_t step = (most + part - 1) / part, next = std::min(now + step, most);
  if (next > now && try_value(c, setting, next)) return;
  if (now > 0) try_value(c, setting, now - std::min(now, step));
}

bool Refinement::try_value(PlannedCandidate& c, const Setting& setting, uint32_t value) const {
  if (value < setting.least) return false;
  PlannedCandidate other = with(c, setting, value);
  return setting.kind == SearchKind::Traces ? replaces_with_trace(std::move(other), c)
                                            : evaluator_.replaces(std::move(other), c);
}

// With fewer recomputed layers the link copies more, or activations take more of the device memory.
// Other numbers are best then. If plans are short, they are searched for each value.
bool Refinement::replaces_with_trace(PlannedCandidate other, PlannedCandidate& c) const {
  other.context = run_dry_(other.asked);
  if (other.context->num_blocks < other.context->smallest_blocks) return false;
  if (!plans_with_less_at_home(other)) return false;
  make_room(other);
  if (is_short(other)) search(other, SearchKind::Steps, kQuarter, kEighth);
  if (!is_better(other.candidate, c.candidate)) return false;
  evaluator_.take(std::move(other), c);
  return true;
}

// More activations in host memory may leave too little for undo logs and gradient buffers.
bool Refinement::plans_with_less_at_home(PlannedCandidate& c) const {
  while (!evaluator_.plans(c)) {
    const std::vector<Setting> settings = settings_of(requested_, *c.context, c.asked);
    const auto large = std::ranges::find_if(
        settings, [&](const Setting& s) { return s.takes_host_memory && s.now(c.asked) > 0; });
    if (large == settings.end()) return false;
    large->set(large->kind == SearchKind::Fewest ? 0 : large->now(c.asked) / 2, c.asked);
  }
  return true;
}

// Device updates and resident weights may leave too few blocks for activations.
void Refinement::make_room(PlannedCandidate& c) const {
  for (const Setting& s : settings(c, SearchKind::Steps)) {
    if (s.takes_blocks && s.now(c.candidate.schedule) > 0) try_value(c, s, 0);
  }
}

// If memory was too small for the largest value, larger ones are tried as long as the step becomes
// faster.
void Refinement::take_fewest(PlannedCandidate& c, const Setting& setting) const {
  const uint32_t now = setting.now(c.candidate.schedule);
  if (now == setting.most) {
    for (uint32_t value = 0; value < setting.most; ++value) {
      if (takes(c, setting, value)) return;
    }
  }
  for (uint32_t value = now + 1; value < setting.most; ++value) {
    if (!try_value(c, setting, value)) return;
  }
}

bool Refinement::takes(PlannedCandidate& c, const Setting& setting, uint32_t value) const {
  PlannedCandidate other = with(c, setting, value);
  const auto is_not_worse = [&c](const Candidate& o) { return !is_better(c.candidate, o); };
  if (!evaluator_.plans_accepted(other, is_not_worse)) return false;
  evaluator_.take(std::move(other), c);
  return true;
}

}  // namespace ebb
