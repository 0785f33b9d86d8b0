// Blocks with which a GPU has to map little. Pure functions.
//
// A block may be mapped at the addresses of several chunks, but a chunk has one block. To map a
// block where another one is mapped takes the thread that does it 0.04 to 0.07 ms, and 1 ms while
// the GPU copies to the host (medians on an H200). So a chunk should get the block again in which
// it was before. make_plan() ignores mappings: a load takes the block that has been free the
// longest, and so starts as early as possible. A simulation shows when a load really starts. By
// then many blocks are free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// The number of moves to the device that need a new mapping, if the step before had the same plan.
/// It is approximate if weights that the host updates are resident, because their blocks may get
/// other numbers in the next step.
uint32_t num_mappings(const Plan& plan);

/// The same plan with other blocks, with which a step needs fewer mappings. `times`: those of the
/// operations in a simulation of the plan. A move to the device gets the first of these blocks that
/// exists:
/// 1. the former block of its chunk, if no other chunk has taken it;
/// 2. the former block, if it has been free for a short time when the move starts in the
/// simulation;
/// 3. of the blocks that have been free for so long, the one whose chunks come back last;
/// 4. the block that has been free the longest.
/// So each block is free when its move starts in the simulation. A move may come later in the list.
/// It does not start later, except where earlier copies or updates take bandwidth of the host
/// memory from others: simulate the result. Returns nothing if no mapping is saved, if a chunk that
/// is on the device when the step begins leaves it, if no block is free for a move, or if
/// operations would wait for each other. REQUIRES: the plan is one of make_plan(), for one rank;
/// the times are on a machine with rates.
std::optional<Plan> with_kept_mappings(const Plan& plan, std::span<const OpTime> times);

}  // namespace ebb
