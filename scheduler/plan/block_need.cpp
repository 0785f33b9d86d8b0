#include "scheduler/plan/block_need.h"

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/residency.h"

namespace ebb {

BlockNeed smallest_need(const ChunkTrace& chunk_trace, const Trace& trace) {
  BlockNeed most;
  uint32_t num_activations = 0;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    num_activations += item.num(ArenaChunkEvent::Begin) + item.num(ArenaChunkEvent::Needed);
    BlockNeed need;
    need.by_space[static_cast<int>(Space::Activations)] = num_activations;
    need.call = item.call == kNone ? "round a gradient" : trace.calls[item.call].name;
    need.num_blocks = num_activations + item.num_uses;
    for (const ChunkUse& use : chunk_trace.uses_of(item)) {
      ++need.by_space[static_cast<int>(chunk_trace.chunk_id(use.chunk).space)];
    }
    if (need.num_blocks > most.num_blocks) most = need;
    num_activations -= item.num(ArenaChunkEvent::Idle) + item.num(ArenaChunkEvent::End);
  }
  return most;
}

BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update) {
  return smallest_need(make_chunk_trace(trace, layout, update), trace);
}

uint32_t full_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return peak_of_chunks(make_chunk_trace(trace, layout, options.update, options.division));
}

uint32_t blocks_of_device_update(const Layout& layout, bool after_norm) {
  return 1 + (after_norm ? layout.gradient_chunks_per_chunk() : 0);
}

}  // namespace ebb
