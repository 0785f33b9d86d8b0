// Chooses the settings that a ScheduleRequest leaves to the planner: tries their values and returns
// the candidate with the shortest predicted time of a step.
//
// Each combination of micro-batch order, recomputation and placement of activations has one dry run
// and layout, and one plan for each order of updates. Each plan is simulated on the machine
// (scheduler/plan/simulate.h). The simulated time is that of a step that follows another one, since
// a plan begins with the deferred updates of the step before. Two times are equal if they differ
// only by rounding. If the rates of the machine are not known, all times are 0. The time of a
// candidate with speculative updates counts as 3 % longer, because it is slower in clipped steps.
// Of candidates with equal times, the one that moves fewer bytes is chosen, then the one with fewer
// flops, then the first one: simple settings come first. The fastest candidates are refined: they
// are planned again with other numbers and other amounts of recomputation.
//
// Pure functions. choose() plans on all cores that the process may use, but makes only one dry run
// at a time, because a model need not be thread-safe. The result does not depend on the number of
// threads.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// The complete preparation of the best candidate: it has all plans. Throws ConfigError if the
/// model cannot run with the first schedule that the request allows. If no candidate fits the
/// budgets, throws PlanError, which is a ConfigError too, and whose text says which memory is too
/// small and the least that is needed. If budgets.host_memory is too small, it is a HomeTooSmall,
/// whose least_bytes() is that number.
///
/// Without a budget of device memory, the device gets as much as it needs to evict no chunk before
/// its last use. If then no candidate fits budgets.total_memory, one rank plans again with less
/// device memory: with what the smallest home of a candidate leaves, and if that does not fit
/// either, with the smallest device budget. Several ranks throw PlanError instead.
Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine);

/// Why the chosen candidate is better than the next one, in a few words. `prepared` is a result of
/// choose().
std::string why_chosen(const Preparation& prepared);

}  // namespace ebb
