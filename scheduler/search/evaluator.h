// A setting on its way to be the planner's choice; private to the planner that chooses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/search/choose.h"

namespace ebb {

/// A candidate with all that it takes to make it the choice.
struct PlannedCandidate {
  std::shared_ptr<const Preparation> context;
  TrainerOptions options;
  Plan plan = {};
  Candidate candidate = {};
  size_t setting = 0, row = 0;  ///< where it stands in the table
  /// That are no better, as far as they were tried on the way here.
  std::vector<TrainerOptions> no_better = {};
};

/// In the same place, with other options; not planned yet.
template <class Change>
PlannedCandidate changed(const PlannedCandidate& c, const Change& change) {
  PlannedCandidate other{.context = c.context,
                         .options = c.options,
                         .candidate = c.candidate,
                         .setting = c.setting,
                         .row = c.row,
                         .no_better = c.no_better};
  other.no_better.push_back(c.options);
  change(other.options);
  return other;
}

/// Is it open on how many chunks to speculate, where that is done?
inline bool may_choose_speculated(const TrainerOptions& requested) {
  return !requested.speculated_chunks && updates_after_norm(requested);
}

/// The better one; of equals, the one that stands first in the table.
bool comes_first(const PlannedCandidate& a, const PlannedCandidate& b);

/// What contenders are measured by. Thread-safe.
class Evaluator {
 public:
  /// Both outlive it.
  Evaluator(const Budgets& budgets, const Machine& machine)
      : budgets_(budgets), machine_(machine) {}

  /// Says in the candidate what the plan takes, all but its bound. Empty; or, where home has no
  /// room for it, what to say of that, and then the candidate says why not.
  std::string evaluate(PlannedCandidate& c) const;
  /// The bound of its plan, for one that is kept.
  void bound(PlannedCandidate& c) const;
  /// Makes the plan that the options ask for, and judges it. Does it fit?
  bool plans(PlannedCandidate& c) const;
  /// From now on it is the contender; with its bound.
  void take(PlannedCandidate other, PlannedCandidate& c) const;
  /// Is it better, once planned? Then it is the contender from now on. False as well where its
  /// options were no better before.
  bool replaces(PlannedCandidate other, PlannedCandidate& c) const;

 private:
  const Budgets& budgets_;
  const Machine& machine_;
};

}  // namespace ebb
