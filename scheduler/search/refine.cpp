#include "scheduler/search/refine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

/// Steps of a search: these parts of the most there may be, ever smaller ones between two of them.
constexpr uint32_t kHalf = 2, kQuarter = 4, kEighth = 8, kFine = 16, kFinest = 64;
/// What a share of updates that is carried is a whole number of.
constexpr uint32_t kShares = 40;
/// More is tried for plans of at most so many operations: for longer ones it takes seconds.
constexpr size_t kMostOperationsOfShort = 150'000;

bool is_short(const PlannedCandidate& c) { return c.plan.ops.size() <= kMostOperationsOfShort; }

bool speculates(const PlannedCandidate& c) { return c.options.update == UpdateOrder::Speculate; }

/// A step on, or else back, of a part of the most there may be, to where `set` says it is better.
template <class Set>
void try_step(uint32_t now, uint32_t most, uint32_t part, const Set& set) {
  const bool is_too_small = part > kHalf && part >= 2 * most;
  if (most == 0 || is_too_small) return;
  const uint32_t step = (most + part - 1) / part, on = std::min(now + step, most);
  if (on > now && set(on)) return;
  if (now > 0) set(now - std::min(now, step));
}

/// Blocks that are recomputed of so many in a row, the fewer the earlier.
struct Pattern {
  uint32_t num, of;
  friend bool operator==(const Pattern&, const Pattern&) = default;
};
constexpr Pattern kPatterns[] = {{1, 8}, {1, 6}, {1, 4}, {1, 3}, {1, 2}, {2, 3}, {3, 4}};

/// Where values leave, some of each few blocks in a row are recomputed, or else the first.
bool spreads(const PlannedCandidate& c) {
  return c.options.activations == ActivationPlacement::Offload &&
         c.options.recompute == Recompute::Layer;
}

/// How much is recomputed, from 1: as the patterns have it, or a number of blocks. The most is all.
uint32_t most_recomputed(const PlannedCandidate& c) {
  return spreads(c) ? std::size(kPatterns) + 1 : c.context->num_layers;
}
uint32_t now_recomputed(const PlannedCandidate& c) {
  const auto num = c.options.recomputed_layers, of = c.options.recomputed_of;
  if (!num) return most_recomputed(c);
  if (!of) return *num;
  const Pattern* const pattern = std::ranges::find(kPatterns, Pattern{*num, *of});
  return static_cast<uint32_t>(pattern - kPatterns) + 1;
}
void set_recomputed(const PlannedCandidate& c, uint32_t amount, TrainerOptions& options) {
  options.recomputed_layers = options.recomputed_of = {};
  if (amount == most_recomputed(c)) return;
  options.recomputed_layers = amount;
  if (!spreads(c)) return;
  options.recomputed_layers = kPatterns[amount - 1].num;
  options.recomputed_of = kPatterns[amount - 1].of;
}

/// Blocks that no moment needs at once may hold weights.
uint32_t most_resident(const PlannedCandidate& c) {
  return c.context->num_blocks - c.context->smallest_blocks;
}

PlannedCandidate with_buffers(const PlannedCandidate& c, uint32_t num) {
  return changed(c, [&](TrainerOptions& options) { options.gradient_buffers = num; });
}

}  // namespace

Refinement::Refinement(const TrainerOptions& requested, const Evaluator& evaluate, RunDry run_dry,
                       double least_s)
    : evaluator_(evaluate),
      run_dry_(std::move(run_dry)),
      least_s_(least_s),
      may_choose_recomputed_(requested.recompute == Recompute::Auto &&
                             !requested.recomputed_layers && !requested.recomputed_of),
      may_speculate_(requested.update == UpdateOrder::Auto),
      may_choose_speculated_(may_choose_speculated(requested)),
      may_choose_device_updates_(!requested.device_updates),
      may_choose_resident_(!requested.resident_chunks),
      may_choose_deferred_(!requested.deferred_share),
      may_choose_buffers_(!requested.gradient_buffers && !updates_after_norm(requested)) {}

std::optional<PlannedCandidate> Refinement::speculative(const PlannedCandidate& c) const {
  if (!is_short(c) || !may_speculate_on(c) || speculates(c)) return std::nullopt;
  PlannedCandidate speculating = c;
  if (!speculate_on(speculating, c.context->layout->num_chunks())) return std::nullopt;
  return speculating;
}

void Refinement::refine(PlannedCandidate& c) const {
  if (may_choose_buffers_) take_gradient_buffers(c);
  if (may_win(c)) search(c, kHalf, kQuarter);
}

bool Refinement::may_recompute_fewer(const PlannedCandidate& c) const {
  return may_choose_recomputed_ && c.options.recompute != Recompute::None;
}

void Refinement::recompute_fewer(PlannedCandidate& c) const {
  search_recomputed(c, kHalf, kEighth);
}

void Refinement::refine_finely(PlannedCandidate& c) const {
  if (!may_win(c)) return;
  search(c, kQuarter, is_short(c) ? kFinest : kFine);
  if (is_short(c) && may_recompute_fewer(c)) {
    search_recomputed(c, kQuarter, kFine);
    search(c, kEighth, kFinest);
  }
  if (may_choose_buffers_) shrink_gradient_buffers(c);
}

// Not where its kernels alone take longer than a whole step of another. Fewer blocks to recompute,
// which would lessen them, are tried all the same.
bool Refinement::may_win(const PlannedCandidate& c) const {
  return c.candidate.bound.compute_s <= least_s_ * (1 + kEqualSeconds);
}

void Refinement::search(PlannedCandidate& c, uint32_t from, uint32_t to) const {
  for (uint32_t part = from; part <= to; part *= 2) try_steps(c, part);
}
void Refinement::try_steps(PlannedCandidate& c, uint32_t part) const {
  const uint32_t num_chunks = c.context->layout->num_chunks();
  if (may_choose_device_updates_) {
    try_step(c.candidate.device_updates, most_device_updates(*c.context), part,
             [&](uint32_t num) { return update_on_device(c, num); });
  }
  if (may_speculate_on(c)) {
    try_step(c.candidate.speculated_chunks, num_chunks, part,
             [&](uint32_t num) { return speculate_on(c, num); });
  }
  // Only steps that do not wait for their norm hold weights that home updates, or have a share of
  // updates to carry; and those whose updates are carried are not held.
  if (updates_after_norm(c.options)) return;
  if (may_choose_resident_) {
    try_step(c.candidate.resident_chunks, most_resident(c), part,
             [&](uint32_t num) { return keep_resident(c, num); });
  }
  if (may_defer(c)) {
    const double now = c.options.deferred_share.value_or(kDeferredShare) * kShares;
    try_step(static_cast<uint32_t>(std::lround(now)), kShares, part,
             [&](uint32_t num) { return defer(c, static_cast<double>(num) / kShares); });
  }
}

// Fewer leave the link or the device's memory more to do. What else hides updates is best at other
// numbers then: where there is time, each is searched for those.
void Refinement::search_recomputed(PlannedCandidate& c, uint32_t from, uint32_t to) const {
  for (uint32_t part = from; part <= to; part *= 2) {
    try_step(now_recomputed(c), most_recomputed(c), part,
             [&](uint32_t amount) { return amount > 0 && recompute(c, amount); });
  }
}
bool Refinement::recompute(PlannedCandidate& c, uint32_t amount) const {
  PlannedCandidate other =
      changed(c, [&](TrainerOptions& options) { set_recomputed(c, amount, options); });
  other.context = run_dry_(other.options);
  if (other.context->num_blocks < other.context->smallest_blocks) return false;
  if (!plans_with_less_at_home(other)) return false;
  make_room(other);
  if (is_short(other)) search(other, kQuarter, kEighth);
  if (!is_better(other.candidate, c.candidate)) return false;
  evaluator_.take(std::move(other), c);
  return true;
}
// At home more values may need what the logs of updates in hope take, or gradients that wait.
bool Refinement::plans_with_less_at_home(PlannedCandidate& c) const {
  std::optional<uint32_t>& num = c.options.speculated_chunks;
  while (!evaluator_.plans(c)) {
    c.candidate.why_not.clear();
    if (may_choose_buffers_ && c.options.gradient_buffers) {
      c.options.gradient_buffers.reset();
    } else if (may_choose_speculated_ && num.value_or(0) > 0) {
      num = *num / 2;
    } else {
      return false;
    }
  }
  return true;
}
// What lives on the device or is held there may leave too little for values.
void Refinement::make_room(PlannedCandidate& c) const {
  if (may_choose_device_updates_ && c.candidate.device_updates > 0) update_on_device(c, 0);
  if (may_choose_resident_ && c.candidate.resident_chunks > 0) keep_resident(c, 0);
}

bool Refinement::update_on_device(PlannedCandidate& c, uint32_t num) const {
  return try_instead(c, [&](TrainerOptions& options) { options.device_updates = num; });
}
bool Refinement::keep_resident(PlannedCandidate& c, uint32_t num) const {
  return try_instead(c, [&](TrainerOptions& options) { options.resident_chunks = num; });
}
bool Refinement::may_defer(const PlannedCandidate& c) const {
  return may_choose_deferred_ && c.options.update != UpdateOrder::Wait;
}
bool Refinement::defer(PlannedCandidate& c, double share) const {
  return try_instead(c, [&](TrainerOptions& options) { options.deferred_share = share; });
}

bool Refinement::may_speculate_on(const PlannedCandidate& c) const {
  const UpdateOrder requested = c.options.update;
  return may_choose_speculated_ && (requested == UpdateOrder::Speculate ||
                                    (may_speculate_ && requested != UpdateOrder::Wait));
}
// What the next forward hides need not be done in hope.
bool Refinement::speculate_on(PlannedCandidate& c, uint32_t num) const {
  if (num == 0) return false;
  return try_instead(c, [&](TrainerOptions& options) {
    options.update = UpdateOrder::Speculate;
    options.speculated_chunks = num;
  });
}

// At home gradients wait for a CPU that falls behind: all of them at first, where they have room.
void Refinement::take_gradient_buffers(PlannedCandidate& c) const {
  takes_buffers(c, c.context->layout->num_chunks());
}
// Then the fewest that do as well; without that room, as many as help.
void Refinement::shrink_gradient_buffers(PlannedCandidate& c) const {
  const uint32_t most = c.context->layout->num_chunks();
  if (c.options.gradient_buffers) {
    for (uint32_t num = kGradientBuffers; num < most; num *= 2) {
      if (takes_buffers(c, num)) return;
    }
  } else {
    uint32_t num = 2 * kGradientBuffers;
    while (num < most && evaluator_.replaces(with_buffers(c, num), c)) num *= 2;
  }
}
// Unless that is worse.
bool Refinement::takes_buffers(PlannedCandidate& c, uint32_t num) const {
  PlannedCandidate other = with_buffers(c, num);
  if (!evaluator_.plans(other) || is_better(c.candidate, other.candidate)) return false;
  evaluator_.take(std::move(other), c);
  return true;
}

template <class Change>
bool Refinement::try_instead(PlannedCandidate& c, const Change& change) const {
  return evaluator_.replaces(changed(c, change), c);
}

}  // namespace ebb
