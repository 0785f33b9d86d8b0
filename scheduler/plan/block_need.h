// How many blocks of device memory plans of a trace need. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/trace.h"

namespace ebb {

/// The blocks that are needed at the same time for the largest item of the trace, by space: what it
/// uses, and all activations that exist and are not idle. No plan works with fewer.
struct BlockNeed {
  uint32_t num_blocks = 0;
  uint32_t by_space[kNumSpaces] = {};
  /// The name of its call, which belongs to the trace, or "round a gradient".
  std::string_view call;
};
BlockNeed smallest_need(const ChunkTrace& chunk_trace, const Trace& trace);
/// The same for one rank without stored groups.
BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update);
/// With so many blocks no chunk is evicted before its last use, if the device updates no chunk.
/// Reads only options.update and options.division.
uint32_t full_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options);

/// Blocks that are set aside for a chunk that the device updates: one for its weights, which it has
/// all the time, and those of its gradient, from the rounding to the update, if the update waits
/// for the norm.
uint32_t blocks_of_device_update(const Layout& layout, bool after_norm);

}  // namespace ebb
