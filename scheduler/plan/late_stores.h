// The order in which stores are submitted. A pure function.
//
// make_plan() lists a store as soon as its chunk may leave. If many chunks leave at once, for
// example the activations of some layers, the link needs longer to store them than the next calls
// take. The thread that submits calls would then wait until the queue of the store stream has room,
// and the compute stream would get no work.
#pragma once

#include <span>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// The most stores that are submitted and have not started, if the run is as fast as planned. The
/// queue has room for two times as many that take five entries, as those of activations do
/// (cuda/in_flight.h). Stores to memory that is not pinned take more.
inline constexpr uint32_t kStoresAhead = 64;

/// Lists store k no earlier than just before the first call that starts when store k - num_ahead
/// starts, or later; if there is no such call, at the end. What waits for a store that moves, or
/// comes after it on its stream, follows it. Everything else keeps its place. The operations of
/// each stream keep their order, and every operation its waits, so a simulation gives the same
/// times. `times`: those of the operations in a simulation of the plan. REQUIRES: num_ahead > 0.
Plan with_late_stores(Plan plan, std::span<const OpTime> times, uint32_t num_ahead = kStoresAhead);

}  // namespace ebb
