// Evaluates candidates: a ledger counts the memory of a plan, a simulation predicts its time.
//
// Private to choose(), its refinement and the benchmark of choices. Times are seconds, sizes are
// bytes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scheduler/search/preparation.h"

namespace ebb {

/// Times that differ by less than this fraction count as equal: they are the same sums in another
/// order.
inline constexpr double kEqualSeconds = 1e-9;
/// Is `a` better than `b`? A candidate that speculates must be 3 % faster than one that does not,
/// because it is slower in clipped steps. REQUIRES: both fit the budgets.
bool is_better(const Candidate& a, const Candidate& b);

/// A candidate with its dry run, its schedule and its plan.
struct PlannedCandidate {
  std::shared_ptr<const Preparation> context;  ///< scheduler/search/prepare.h
  /// The schedule for which the plan is made. The numbers of the plan, which candidate.schedule
  /// has, may be smaller.
  Schedule asked;
  Plan plan = {};
  Candidate candidate = {};
  /// `schedule_index`: the index of the schedule in the result of schedules_to_try(). `row`: the
  /// index of the candidate among those of this schedule.
  size_t schedule_index = 0, row = 0;
};

/// A copy of the candidate without a plan. change(schedule) changes the schedule of the copy.
template <class Change>
PlannedCandidate changed(const PlannedCandidate& c, const Change& change) {
  PlannedCandidate other{.context = c.context,
                         .asked = c.asked,
                         .candidate = c.candidate,
                         .schedule_index = c.schedule_index,
                         .row = c.row};
  change(other.asked);
  return other;
}

/// True if `a` is better than `b` (is_better()). Of two equally good candidates, the one with the
/// smaller `schedule_index` and then the smaller `row` comes first.
bool comes_first(const PlannedCandidate& a, const PlannedCandidate& b);

/// Evaluates candidates by budgets and the rates of a machine. plans() stores its result by
/// schedule, because the refinements of different candidates come to the same schedules.
/// plans_accepted() and replaces() use it to reject a schedule without planning it again.
/// REQUIRES: the contexts of all candidates have the same model, options and budgets, and c.context
/// is a context of c.asked. Several threads may call all functions, each with its own candidates.
class Evaluator {
 public:
  /// Both arguments must outlive this object.
  Evaluator(const Budgets& budgets, const Machine& machine)
      : budgets_(budgets), machine_(machine) {}

  /// Stores in c.candidate the memory, the bytes moved and the simulated time of c.plan, but no
  /// bound, and returns an empty string. If the budget of host memory or that of device and host
  /// memory together is too small, returns the text of the error, and stores the reason in
  /// c.candidate.why_not; time and bytes moved stay as they were. The budget of device memory is
  /// not checked, because the number of blocks is already chosen for it.
  std::string evaluate(PlannedCandidate& c) const;
  /// Computes the bound of c.plan.
  void bound(PlannedCandidate& c) const;
  /// Makes c.plan for the schedule c.asked, evaluates it, and stores the result. Returns whether it
  /// fits the budgets. REQUIRES: c.context->num_blocks >= c.context->smallest_blocks.
  bool plans(PlannedCandidate& c);
  /// Plans `c` as plans() does. Returns whether the plan fits and accepts(c.candidate) is true. If
  /// the stored result of c.asked shows that the answer is false, nothing is planned, and `c` does
  /// not change. In all other cases `c` has the new plan. accepts() may also get a stored result,
  /// which has no bound.
  template <class Accepts>
  bool plans_accepted(PlannedCandidate& c, const Accepts& accepts) {
    const Candidate* const known = result_of(c.asked);
    if (known && !(known->why_not.empty() && accepts(*known))) return false;
    return plans(c) && accepts(c.candidate);
  }
  /// Replaces `c` by `other` and computes the bound. REQUIRES: plans(other) was true.
  void take(PlannedCandidate other, PlannedCandidate& c) const;
  /// Plans `other`, and replaces `c` by it if it fits and is better. Returns whether it did so.
  bool replaces(PlannedCandidate other, PlannedCandidate& c);

 private:
  /// The result of plans() for this schedule; nullptr if it was not planned. Stays valid.
  const Candidate* result_of(const Schedule& asked) const;

  const Budgets& budgets_;
  const Machine& machine_;
  mutable std::mutex results_mutex_;
  std::map<Schedule, Candidate> results_;  // by PlannedCandidate::asked
};

}  // namespace ebb
