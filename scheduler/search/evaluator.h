// Evaluates candidates: a ledger counts the memory of a plan, a simulation predicts its time.
//
// Private to choose() and its refinement. Times are seconds, sizes are bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/search/choose.h"

namespace ebb {

/// A candidate with its dry run, its schedule and its plan.
struct PlannedCandidate {
  std::shared_ptr<const Preparation> context;  ///< scheduler/search/prepare.h
  Schedule asked;  ///< candidate.schedule says what the plan does: its numbers may be smaller
  Plan plan = {};
  Candidate candidate = {};
  size_t setting = 0, row = 0;  ///< in schedules_to_try(); among its candidates
  /// Schedules that were tried before and were not better than that of this candidate.
  std::vector<Schedule> no_better = {};
};

/// A copy of the candidate with a changed schedule and without a plan. The schedule of the original
/// is among the copy's `no_better`.
template <class Change>
PlannedCandidate changed(const PlannedCandidate& c, const Change& change) {
  PlannedCandidate other{.context = c.context,
                         .asked = c.asked,
                         .candidate = c.candidate,
                         .setting = c.setting,
                         .row = c.row,
                         .no_better = c.no_better};
  other.no_better.push_back(c.asked);
  change(other.asked);
  return other;
}

/// Is `a` better than `b` (is_better(), scheduler/search/choose.h)? Of two equal candidates, the
/// first one in the table is better.
bool comes_first(const PlannedCandidate& a, const PlannedCandidate& b);

/// Evaluates candidates by budgets and the rates of a machine. Thread-safe.
class Evaluator {
 public:
  /// Both arguments must outlive this object.
  Evaluator(const Budgets& budgets, const Machine& machine)
      : budgets_(budgets), machine_(machine) {}

  /// Stores in c.candidate the memory, the bytes moved and the simulated time of c.plan, but no
  /// bound. Returns an empty string; or, if host memory is too small, the text of an error, and
  /// then c.candidate.why_not has the reason.
  std::string evaluate(PlannedCandidate& c) const;
  /// Computes the bound of c.plan.
  void bound(PlannedCandidate& c) const;
  /// Makes the plan that c.asked asks for and evaluates it. Returns whether it fits the budgets.
  bool plans(PlannedCandidate& c) const;
  /// Replaces `c` by `other` and computes the bound.
  void take(PlannedCandidate other, PlannedCandidate& c) const;
  /// Plans `other`, and replaces `c` by it if it fits and is better. Returns whether it did so.
  /// Schedules in other.no_better are not planned again: false.
  bool replaces(PlannedCandidate other, PlannedCandidate& c) const;

 private:
  const Budgets& budgets_;
  const Machine& machine_;
};

}  // namespace ebb
