// Reference results for the planner and the validator, computed with simple and slow algorithms.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/plan.h"

namespace ebb::test {

/// How often a block is assigned to a chunk: with a load, or without (create).
struct Assignments {
  uint64_t loads = 0;
  uint64_t creates = 0;
};
/// Returns the assignments if each eviction chooses the chunk with the furthest next use, found by
/// a scan of the following items. A chunk that is never used again is evicted first. An activation
/// chunk that is allocated again counts as used again.
Assignments count_by_scanning(const ChunkTrace& chunk_trace, uint32_t num_blocks);
/// Returns the fewest assignments of all possible evictions, or the fewest loads if `only_loads`.
/// Tries all of them. REQUIRES: at most 20 chunks.
uint64_t fewest_by_trying_all(const ChunkTrace& chunk_trace, uint32_t num_blocks, bool only_loads);

/// [later][earlier]: is operation `earlier` certainly done before operation `later` starts?
std::vector<std::vector<bool>> reachability(const Plan& plan);

}  // namespace ebb::test
