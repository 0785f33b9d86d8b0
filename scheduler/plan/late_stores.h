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

/// How many stores wait in the queue of their stream. There is room for two times as many that take
/// five entries, as those of activations do, so the link may be slower than was planned
/// (cuda/in_flight.h). Stores of memory that is not pinned take more.
inline constexpr uint32_t kStoresAhead = 64;

/// Lists store k when store k - num_ahead starts: before the first call that starts then or later.
/// What waits for store k follows it, and everything else keeps its place. The operations of each
/// stream keep their order, and every operation its waits, so a simulation gives the same times.
/// `times`: those of the operations in a simulation of the plan. REQUIRES: num_ahead > 0.
Plan with_late_stores(Plan plan, std::span<const OpTime> times, uint32_t num_ahead = kStoresAhead);

}  // namespace ebb
