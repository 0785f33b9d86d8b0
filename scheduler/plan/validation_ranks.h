// Checks that the plans of all ranks fit together: every message that a rank waits for is sent, and
// no ranks wait for each other for ever. A pure function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "scheduler/plan/plan.h"

namespace ebb {

/// `plans`: those of a step, one of each rank, in the order of the ranks; each is valid by itself
/// (validate.h). Returns what is wrong; empty: nothing is.
std::vector<std::string> validate_ranks(std::span<const Plan* const> plans);

}  // namespace ebb
