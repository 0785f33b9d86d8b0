#include "scheduler/refine.h"

#include <algorithm>
#include <utility>

#include "scheduler/prepare.h"

namespace ebb {
namespace {

constexpr int kHalvings = 3;
constexpr double kCarriedShares[] = {0, 0.25, 0.4, 0.6}, kCarriedSteps[] = {0.05, 0.025};
/// What is searched from two beginnings is so for plans of at most so many operations: for longer
/// ones it takes seconds.
constexpr size_t kMostOperationsTwice = 150'000;

/// Blocks that are recomputed of so many in a row, the fewer the earlier.
struct Pattern {
  uint32_t num, of;
};
constexpr Pattern kPatterns[] = {{1, 8}, {1, 6}, {1, 4}, {1, 3}, {1, 2}, {2, 3}, {3, 4}};

/// Looks for the least number below `most` that is good.
template <class IsGood>
void halve(uint32_t most, const IsGood& is_good) {
  uint32_t too_few = 0, enough = most;
  for (int i = 0; i < kHalvings && too_few + 1 < enough; ++i) {
    const uint32_t num = (too_few + enough) / 2;
    (is_good(num) ? enough : too_few) = num;
  }
}

bool is_short(const Contender& c) { return c.plan.ops.size() <= kMostOperationsTwice; }

bool hopes(const Contender& c) { return c.options.update == UpdateOrder::Speculate; }

}  // namespace

Refinement::Refinement(const TrainerOptions& told, const Judge& judge, RunDry run_dry,
                       double least_s)
    : judge_(judge),
      run_dry_(std::move(run_dry)),
      least_s_(least_s),
      may_recompute_fewer_(told.recompute == Recompute::Auto && !told.recomputed_blocks &&
                           !told.recomputed_of),
      may_speculate_(told.update == UpdateOrder::Auto),
      may_choose_speculated_(may_choose_speculated(told)),
      may_choose_device_updates_(!told.device_updates),
      may_choose_held_(!told.held_chunks),
      may_choose_carried_(!told.carried_share),
      may_choose_slots_(!told.gradient_slots && !updates_after_norm(told)) {}

template <class Change>
void Refinement::try_instead(Contender& c, const Change& change) const {
  judge_.replaces(changed(c, change), c);
}

// The fewest recomputed blocks are not always the best once hope hides the updates that they left
// no time for, or are the best only then.
void Refinement::refine(Contender& c) const {
  if (!may_recompute_fewer_ || c.options.recompute == Recompute::None) return refine_rest(c);
  const bool may_hope = may_speculate_on(c);
  Contender fewer = c, hopeful = c;
  const bool helps = recompute_fewer(fewer);
  if (!helps || may_hope || is_short(c)) refine_rest(c);
  if (helps) refine_instead(c, std::move(fewer));
  if (!may_hope || hopes(hopeful)) return;
  speculate_on(hopeful, hopeful.ground->layout->num_chunks());
  if (hopes(hopeful) && recompute_fewer(hopeful)) refine_instead(c, std::move(hopeful));
}
void Refinement::refine_instead(Contender& c, Contender other) const {
  refine_rest(other);
  if (is_better(other.candidate, c.candidate)) c = std::move(other);
}

// Nothing makes a step faster than its kernels.
bool Refinement::may_win(const Contender& c) const {
  return c.candidate.bound.compute_s <= least_s_ * (1 + kEqualSeconds);
}

// With hope from the beginning other numbers are best than with hope at last.
void Refinement::refine_rest(Contender& c) const {
  if (!may_win(c)) return;
  Contender hopeful = c;
  refine_numbers(c);
  if (!is_short(c) || !may_speculate_on(hopeful) || hopes(hopeful)) return;
  speculate_on(hopeful, hopeful.ground->layout->num_chunks());
  if (!hopes(hopeful)) return;
  refine_numbers(hopeful);
  if (is_better(hopeful.candidate, c.candidate)) c = std::move(hopeful);
}

void Refinement::refine_numbers(Contender& c) const {
  if (may_choose_slots_) take_gradient_slots(c);
  if (may_choose_device_updates_) {
    const uint32_t most = most_device_updates(*c.ground);
    for (uint32_t num = most; num > most / 8; num /= 2) update_on_device(c, num);
  }
  if (may_speculate_on(c)) speculate(c);
  if (!updates_after_norm(c.options)) hold_and_carry(c);
}

void Refinement::polish(Contender& c) const {
  if (!may_win(c)) return;
  if (may_choose_device_updates_) refine_device_updates(c);
  if (!updates_after_norm(c.options)) polish_held_and_carried(c);
  if (may_choose_speculated_ && hopes(c)) {
    const uint32_t all = c.ground->layout->num_chunks();
    speculate_near(c, all / 16, all / 64);
  }
  if (may_choose_slots_) settle_gradient_slots(c);
}

void Refinement::refine_device_updates(Contender& c) const {
  const uint32_t most = most_device_updates(*c.ground);
  for (uint32_t step = most / 4; step > most / 64; step /= 2) {
    const uint32_t now = c.candidate.num_device_updates;
    update_on_device(c, std::min(now + step, most));
    update_on_device(c, now - std::min(now, step));
  }
}
void Refinement::update_on_device(Contender& c, uint32_t num) const {
  if (num == c.candidate.num_device_updates) return;
  try_instead(c, [&](TrainerOptions& options) { options.device_updates = num; });
}
// Only steps that do not wait for their norm hold weights that home updates, or have a share of
// updates to carry.
void Refinement::hold_and_carry(Contender& c) const {
  if (may_choose_held_) {
    const uint32_t most = most_held(c);
    for (uint32_t num = most; num > most / 8; num /= 2) hold(c, num);
  }
  if (may_carry(c)) {  // those whose updates are carried are not held
    for (const double share : kCarriedShares) carry(c, share);
  }
}
void Refinement::polish_held_and_carried(Contender& c) const {
  if (may_choose_held_) {
    const uint32_t most = most_held(c);
    for (uint32_t step = most / 4; step > most / 64; step /= 2) {
      const uint32_t now = c.candidate.num_held;
      hold(c, std::min(now + step, most));
      hold(c, now - std::min(now, step));
    }
  }
  if (may_carry(c)) {
    for (const double step : kCarriedSteps) {
      const double now = c.options.carried_share.value_or(kCarriedShare);
      carry(c, std::min(now + step, 1.0));
      carry(c, std::max(now - step, 0.0));
    }
  }
}
// Blocks that no moment needs at once may hold weights.
uint32_t Refinement::most_held(const Contender& c) {
  return c.ground->num_blocks - c.ground->smallest_blocks;
}
void Refinement::hold(Contender& c, uint32_t num) const {
  try_instead(c, [&](TrainerOptions& options) { options.held_chunks = num; });
}
bool Refinement::may_carry(const Contender& c) const {
  return may_choose_carried_ && c.options.update != UpdateOrder::Wait;
}
void Refinement::carry(Contender& c, double share) const {
  try_instead(c, [&](TrainerOptions& options) { options.carried_share = share; });
}

// At home gradients wait for a CPU that falls behind: all of them at first, where they have room.
void Refinement::take_gradient_slots(Contender& c) const {
  takes_slots(c, c.ground->layout->num_chunks());
}
// Then the fewest that do as well; without that room, as many as help.
void Refinement::settle_gradient_slots(Contender& c) const {
  const uint32_t most = c.ground->layout->num_chunks();
  if (c.options.gradient_slots) {
    for (uint32_t num = kGradientSlots; num < most; num *= 2) {
      if (takes_slots(c, num)) return;
    }
  } else {
    uint32_t num = 2 * kGradientSlots;
    while (num < most && judge_.replaces(with_slots(c, num), c)) num *= 2;
  }
}
Contender Refinement::with_slots(const Contender& c, uint32_t num) {
  return changed(c, [&](TrainerOptions& options) { options.gradient_slots = num; });
}
// Unless that is worse.
bool Refinement::takes_slots(Contender& c, uint32_t num) const {
  Contender other = with_slots(c, num);
  if (!judge_.plans(other) || is_better(c.candidate, other.candidate)) return false;
  c = std::move(other);
  judge_.bound(c);
  return true;
}

bool Refinement::may_speculate_on(const Contender& c) const {
  const UpdateOrder told = c.options.update;
  return may_choose_speculated_ &&
         (told == UpdateOrder::Speculate || (may_speculate_ && told != UpdateOrder::Wait));
}

// On as many chunks as is fastest: what the next forward hides need not be done in hope.
void Refinement::speculate(Contender& c) const {
  const UpdateOrder told = c.options.update;
  const uint32_t most = c.ground->layout->num_chunks();
  if (told != UpdateOrder::Speculate) speculate_on(c, most);  // as where it is told
  speculate_near(c, (most + 1) / 2, most / 16);
}
// With ever smaller steps, above `least`.
void Refinement::speculate_near(Contender& c, uint32_t step, uint32_t least) const {
  for (; step > least; step /= 2) {
    const auto now = static_cast<uint32_t>(c.plan.speculated.size());
    speculate_on(c, now + step);
    speculate_on(c, now - std::min(now, step));
  }
}
void Refinement::speculate_on(Contender& c, uint32_t num) const {
  if (num == 0 || num > c.ground->layout->num_chunks()) return;
  try_instead(c, [&](TrainerOptions& options) {
    options.update = UpdateOrder::Speculate;
    options.speculated_chunks = num;
  });
}

// The fewest that fit and are faster, by halves: of each few in a row where values leave, or else
// the first. False: none.
bool Refinement::recompute_fewer(Contender& c) const {
  const Contender all = c;
  if (c.options.activations == ActivationPlacement::Offload &&
      c.options.recompute == Recompute::Block) {
    halve(std::size(kPatterns) + 1, [&](uint32_t i) {
      return recompute(all, c, kPatterns[i - 1].num, kPatterns[i - 1].of);
    });
  } else {
    halve(all.ground->num_model_blocks, [&](uint32_t num) { return recompute(all, c, num, {}); });
  }
  return c.ground != all.ground;
}

bool Refinement::recompute(const Contender& from, Contender& c, uint32_t num,
                           std::optional<uint32_t> of) const {
  Contender fewer = changed(from, [&](TrainerOptions& options) {
    options.recomputed_blocks = num;
    options.recomputed_of = of;
  });
  fewer.ground = run_dry_(fewer.options);
  return fewer.ground->num_blocks >= fewer.ground->smallest_blocks &&
         judge_.replaces(std::move(fewer), c);
}

}  // namespace ebb
