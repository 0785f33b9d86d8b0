// What the planner and the validator should find, worked out in the simplest way there is.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/plan.h"

namespace ebb::test {

/// How often chunks come to the device: with their content, or (create) without.
struct Brings {
  uint64_t loads = 0;
  uint64_t creates = 0;
};
/// Under furthest next use, by scanning ahead at every eviction. An activation chunk that comes to
/// life again is used again; what is never used again goes first.
Brings count_by_scanning(const ChunkTrace& chunk_trace, uint32_t num_blocks);
/// The fewest of any way to evict, by trying all: of brings, or of loads alone. REQUIRES: at most
/// 20 chunks.
uint64_t fewest_by_trying_all(const ChunkTrace& chunk_trace, uint32_t num_blocks, bool loads_alone);

/// For every operation: is each other one surely done before it starts? [later][earlier].
std::vector<std::vector<bool>> reachability(const Plan& plan);

}  // namespace ebb::test
