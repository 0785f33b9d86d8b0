// Blocks with which a GPU has to map little. Pure functions.
//
// A block may be mapped at the addresses of several chunks, but a chunk has one block. To map a
// block where another one is mapped takes the thread that submits loads 0.03 ms, and 1 ms while the
// GPU copies to the host (measured on an H200). So a chunk should get the block again in which it
// was before. make_plan() ignores mappings: a load takes the block that has been free the longest,
// and so starts as early as possible. A simulation shows when a load really starts. By then many
// blocks are free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// The moves to the device that need a new mapping, if the step before had the same plan. If
/// weights that the host updates are resident, the number is approximate.
uint32_t num_mappings(const Plan& plan);

/// The same plan with other blocks, with which a step needs fewer mappings. A move gets the former
/// block of its chunk if this block has been free for a short time when the move starts in the
/// simulation. If not, it gets one that has been free for so long, and whose chunks come back last.
/// If there is none, it gets the block that has been free the longest. So each block is free when
/// its move starts in the simulation, and no move starts later than before. A move may come later
/// in the list. `times`: those of the operations in the simulation. Returns nothing if this saves
/// no mapping, or if a chunk that is on the device when the step begins leaves it. REQUIRES: the
/// plan is one of make_plan(), on a machine with rates.
std::optional<Plan> with_kept_mappings(const Plan& plan, std::span<const OpTime> times);

}  // namespace ebb
