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

/// The most stores that are listed before a call and start after it in the simulation. The thread
/// that submits runs ahead, so more may be in the queue. The queue has room for two times as many
/// that take five entries, as those of activations do (cuda/in_flight.h). Stores to memory that is
/// not pinned take more.
inline constexpr uint32_t kStoresAhead = 64;

/// Let t be the time when store k - num_ahead starts. Store k is listed just before the first call
/// that starts at t or later, or at the end if there is none, or at its old place if that comes
/// later. What waits for a store that moves, or
/// comes after it on its stream, follows it. Everything else keeps its place. The operations of
/// each stream keep their order, and every operation its waits, so a simulation gives the same
/// times. `times`: those of the operations in a simulation of the plan. REQUIRES: num_ahead > 0.
Plan with_late_stores(Plan plan, std::span<const OpTime> times, uint32_t num_ahead = kStoresAhead);

}  // namespace ebb
