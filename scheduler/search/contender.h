// A setting on its way to be the planner's choice; private to the planner that chooses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/search/choose.h"

namespace ebb {

/// A candidate with all that it takes to make it the choice.
struct Contender {
  std::shared_ptr<const Preparation> ground;
  TrainerOptions options;
  Plan plan = {};
  Candidate candidate = {};
  size_t setting = 0, row = 0;  ///< where it stands in the table
  /// That are no better, as far as they were tried on the way here.
  std::vector<TrainerOptions> no_better = {};
};

/// In the same place, with other options; not planned yet.
template <class Change>
Contender changed(const Contender& c, const Change& change) {
  Contender other{.ground = c.ground,
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
inline bool may_choose_speculated(const TrainerOptions& told) {
  return !told.speculated_chunks && updates_after_norm(told);
}

/// The better one; of equals, the one that stands first in the table.
bool comes_first(const Contender& a, const Contender& b);

/// What contenders are measured by. Thread-safe.
class Judge {
 public:
  /// Both outlive it.
  Judge(const Budgets& budgets, const Machine& machine) : budgets_(budgets), machine_(machine) {}

  /// Says in the candidate what the plan takes, all but its bound. Empty; or, where home has no
  /// room for it, what to say of that, and then the candidate says why not.
  std::string judge(Contender& c) const;
  /// The bound of its plan, for one that is kept.
  void bound(Contender& c) const;
  /// Makes the plan that the options ask for, and judges it. Does it fit?
  bool plans(Contender& c) const;
  /// From now on it is the contender; with its bound.
  void take(Contender other, Contender& c) const;
  /// Is it better, once planned? Then it is the contender from now on. False as well where its
  /// options were no better before.
  bool replaces(Contender other, Contender& c) const;

 private:
  const Budgets& budgets_;
  const Machine& machine_;
};

}  // namespace ebb
