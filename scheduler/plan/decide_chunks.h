// The first part of the planner: it decides what happens to each parameter chunk in a step, before
// any block is assigned. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/plan.h"

namespace ebb {

struct ChunkDecisions {
  std::vector<ChunkRecord> chunks = {};  ///< [parameter chunk], without blocks
  uint32_t gradient_buffers = 0;         ///< how many there are, shared or not
  uint32_t num_spare = 0;                ///< blocks that neither a call nor a device update needs
};

/// How many gradient buffers the rank has whose records these are.
uint32_t num_gradient_buffers(std::span<const ChunkRecord> chunks, const PlanOptions& options);

/// Decides everything but residents and blocks. `chunk_trace` has no device updates. `num_spare`
/// is the number of blocks that are left beyond the smallest need.
ChunkDecisions decide_chunks(const ChunkTrace& chunk_trace, const Layout& layout,
                             const PlanOptions& options, uint32_t num_spare);

/// The most chunks of weights that may be resident, besides those with device updates: at most
/// schedule.resident_chunks, and 0 in a step whose updates wait for the norm. At most `num_spare`,
/// except in an evaluation whose weights and activations all fit into options.num_blocks.
uint32_t most_residents(const ChunkTrace& chunk_trace, const PlanOptions& options,
                        uint32_t num_spare);

/// Makes at most `num` chunks resident, besides those whose planes are on the device, and no
/// others: in a step the ones that are rounded first and not deferred, in an evaluation some that
/// are evenly spread. If planes are on the device, an evaluation has no further residents.
void decide_residents(const ChunkTrace& chunk_trace, const PlanOptions& options, uint32_t num,
                      std::vector<ChunkRecord>& chunks);

}  // namespace ebb
