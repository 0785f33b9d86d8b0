// Chooses the settings that a ScheduleRequest leaves to the planner: tries their values and returns
// the candidate with the shortest predicted time of a step.
//
// Each combination of micro-batch order, recomputation and placement of activations has one dry run
// and layout, and one plan for each order of updates. Each plan is simulated on the machine
// (scheduler/plan/simulate.h). The simulated time is that of a step that follows another one, since
// a plan begins with the deferred updates of the step before. If two times are equal up to
// rounding, as they are on a machine without rates, the candidate that moves fewer bytes is chosen,
// then the one with fewer flops, then the first one: simple settings come first.
//
// Pure functions; the result does not depend on the number of threads.
#pragma once

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

/// The complete preparation of the best candidate. If no candidate fits, throws PlanError with the
/// smallest budget that works for one.
Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine);

/// Why the chosen candidate is better than the next one, in a few words.
std::string why_chosen(const Preparation& prepared);

}  // namespace ebb
