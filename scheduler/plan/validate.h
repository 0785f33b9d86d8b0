// Checks a plan against its trace with rules of its own, so that a mistake of the planner is found
// before anything runs. The validator executes the plan symbolically, in order, and knows for every
// operation which others are certainly done before it starts. Pure. Its time is linear in the
// number of operations and accesses.
//
// - Every call finds its chunks on the device, with the content that it expects. No load is wasted.
// - No block holds two chunks, and no block is beyond the budget.
// - Every access to a block, to host memory of a chunk or to a gradient buffer comes after what it
//   needs and before what overwrites it, by stream order and by the waits that the plan names.
// - Every gradient is rounded once, after its last contribution, is stored once, and is used by one
//   update.
// - The norm comes after every gradient. If updates wait for the norm, it comes before every update
//   of this step's gradients, except speculative updates.
// - The next step makes the deferred updates from the gradients that this step left in gradient
//   buffers or on the device, before it loads the weights that they change.
// - A chunk with a speculative update also has a deferred one, and nothing reads its weights again
//   in this step.
// - The weights of a chunk of Tier::Device always have a block. Its gradient stays on the device
//   until its update.
// - Weights are loaded from where the chunk has its planes.
// - Resident weights are on the device when the plan begins. When it ends, the same chunks are on
//   the device, updated, and no others.
// - The counts of the plan are right. An evaluation rounds and updates nothing.
//
// On the load stream an operation begins when those before it have begun; their copies need not be
// done. On the other streams it begins when those before it have ended.
#pragma once

#include <string>
#include <vector>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/trace.h"

namespace ebb {

/// Returns the first fifty mistakes, one sentence each. Empty: the plan is good.
/// `options`: what make_plan() was to do; upper limits, such as resident_chunks, are not compared.
/// REQUIRES: the layout was made for the trace's parameters, and the plan is that of a step or of
/// an evaluation, not an initialise, warm-up or flush plan.
std::vector<std::string> validate(const Plan& plan, const Trace& trace, const Layout& layout,
                                  const PlanOptions& options);

}  // namespace ebb
