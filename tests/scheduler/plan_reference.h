// What the planner and the validator should find, worked out in the simplest way there is.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/program.h"

namespace ebb::test {

/// Loads of a program under furthest next use, by scanning ahead at every eviction.
uint64_t count_loads_by_scanning(const Program& program, uint32_t num_blocks);
/// The fewest loads of any way to evict, by trying all. REQUIRES: at most 20 chunks.
uint64_t count_loads_by_trying_all(const Program& program, uint32_t num_blocks);

/// For every operation: is each other one surely done before it starts? [later][earlier].
std::vector<std::vector<bool>> reachability(const Plan& plan);

}  // namespace ebb::test
