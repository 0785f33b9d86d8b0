// Checks a plan against its trace by rules of its own: an independent reading, so that a mistake of
// the planner's is found before anything runs. It carries the plan out on symbols, in order, and
// knows of every operation which others are surely done before it starts. Pure. Takes time linear
// in operations and accesses.
//
//   - every moment finds its chunks on the device, with the content it expects; nothing is brought
//   in vain
//   - no block holds two chunks, none beyond the budget
//   - whatever touches a block, a home copy or a gradient slot happens after what it needs and
//   before what overwrites
//     it, by lane order and the waits that the plan names: never by luck
//   - every gradient is finished once, after its last contribution, goes home once and is used by
//   one update
//   - the norm comes after every gradient and, where the plan clips, before every update
//   - an update that is carried into the next step is made there, on the gradient that this step
//   left in its slot, and before the weights it changes are loaded
//   - what is speculated on is updated by the next step, too, and nothing reads its weights again
//   in this one
//   - what is updated on the device has its weights there all the time, and its gradient until then
//   - weights that are held are there when the plan begins; when it ends, the same, updated, and
//   nothing else
//   - the counts that the plan gives of itself are right; an evaluation finishes and updates
//   nothing
//
// StreamKind order is read as it is carried out: an operation of the load lane begins once those
// before it have begun, their copies need not be done; only copies are in order among themselves.
// An update begins once those before it have begun, and ends behind them.
#pragma once

#include <string>
#include <vector>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/trace.h"

namespace ebb {

/// What is wrong, one sentence each, the first fifty; empty when the plan is good.
/// REQUIRES: the layout was made for the trace's parameters.
std::vector<std::string> validate(const Plan& plan, const Trace& trace, const Layout& layout,
                                  const PlanOptions& options);

}  // namespace ebb
