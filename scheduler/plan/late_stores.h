// The order in which stores are submitted. A pure function.
//
// make_plan() lists a store as soon as its chunk may leave. If many chunks leave at once, for
// example the activations of some layers, the link needs much longer to store them than the calls
// between which they are listed. The thread that submits calls would then wait until the queue of
// the store stream has room, and the compute stream would get no work.
#pragma once

#include <span>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// So many stores are submitted before they start. A queue of the store stream must have room for
/// them, and for as many again if the link is slower than was planned (cuda/in_flight.h).
inline constexpr uint32_t kStoresAhead = 64;

/// Lists each store only when the store kStoresAhead before it starts: before the next call that
/// starts then or later. What waits for such a store follows it, and everything else keeps its
/// place. The operations of each stream keep their order, and every operation its waits, so a
/// simulation gives the same times. `times`: those of the operations in a simulation of the plan.
Plan with_late_stores(Plan plan, std::span<const OpTime> times);

}  // namespace ebb
