#include "scheduler/search/refine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/search/prepare.h"

namespace ebb {
namespace {

/// A search changes a number in steps of 1/2, 1/4, ... of its maximum. These are the denominators
/// of the first and of the last step.
constexpr uint32_t kHalf = 2, kQuarter = 4, kEighth = 8, kFine = 16, kFinest = 64;
/// The share of deferred updates is a multiple of 1/40.
constexpr uint32_t kShares = 40;
/// Plans with at most so many operations are short. Longer plans have fewer steps of a search,
/// because planning them again takes seconds.
constexpr size_t kMostOperationsOfShort = 150'000;

bool is_short(const PlannedCandidate& c) { return c.plan.ops.size() <= kMostOperationsOfShort; }

bool speculates(const PlannedCandidate& c) { return c.options.update == UpdateOrder::Speculate; }

/// Changes a number by most / part: up if set(new number) returns true, which means better, or else
/// down.
template <class Set>
void try_step(uint32_t now, uint32_t most, uint32_t part, const Set& set) {
  const bool is_too_small = part > kHalf && part >= 2 * most;
  if (most == 0 || is_too_small) return;
  const uint32_t step = (most + part - 1) / part, on = std::min(now + step, most);
  if (on > now && set(on)) return;
  if (now > 0) set(now - std::min(now, step));
}

/// Recomputes `num` of each `of` consecutive layers. kPatterns is sorted by num / of.
struct Pattern {
  uint32_t num, of;
  friend bool operator==(const Pattern&, const Pattern&) = default;
};
constexpr Pattern kPatterns[] = {{1, 8}, {1, 6}, {1, 4}, {1, 3}, {1, 2}, {2, 3}, {3, 4}};

/// Does the candidate recompute by a pattern? It does so with offloading: the layers that are
/// recomputed are spread. Otherwise the first layers are recomputed.
bool spreads(const PlannedCandidate& c) {
  return c.options.activations == ActivationPlacement::Offload &&
         c.options.recompute == Recompute::Layer;
}

/// The amount of recomputation is a number from 1 to the most, which means all layers. It is the
/// number of a pattern, counted from 1, or a number of layers.
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

/// The blocks that the largest call does not need can hold resident weights.
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

// No candidate can be the fastest if its kernels alone take longer than a whole step of another
// one. Fewer recomputed layers, which would shorten its kernels, are tried all the same.
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
  // If updates wait for the norm, the plan has no resident weights that the host updates, and
  // either all updates are deferred or none. Chunks with a deferred update cannot be resident.
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

// With fewer recomputed layers the link copies more, or activations take more of the device memory.
// Other numbers are best then. If plans are short, they are searched for each amount.
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
// Plans the candidate. More activations in host memory may leave too little for gradient buffers
// and undo logs: then their numbers are reduced until the plan fits.
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
// Device updates and resident weights may leave too few blocks for activations. Removes them if the
// candidate is better without.
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
// 0 chunks are not tried: this is the same as Overlap.
bool Refinement::speculate_on(PlannedCandidate& c, uint32_t num) const {
  if (num == 0) return false;
  return try_instead(c, [&](TrainerOptions& options) {
    options.update = UpdateOrder::Speculate;
    options.speculated_chunks = num;
  });
}

// Finished gradients wait in host memory if the optimizer is slower than the backward. First, all
// gradients get a buffer, if host memory is large enough.
void Refinement::take_gradient_buffers(PlannedCandidate& c) const {
  takes_buffers(c, c.context->layout->num_chunks());
}
// Then as few buffers as are as fast; or, if host memory was too small for all, as many as make the
// step faster.
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
// Plans the candidate with `num` gradient buffers, and replaces it unless it fits no more or is
// worse.
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
