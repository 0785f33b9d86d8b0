#include "scheduler/plan/plan.h"

#include <algorithm>
#include <utility>

#include "device/errors.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/decide_chunks.h"
#include "scheduler/plan/emitter.h"
#include "scheduler/plan/residency.h"

namespace ebb {
namespace {

// A chunk is protected while an eighth of the blocks get other chunks. This is 1-4 % more traffic
// than the least, but calls do not wait for blocks from which gradient sums are still being stored
// (GPT-3 with two micro-batches, simulated: 1.005 x the bound, and 1.16 x without protection).
constexpr uint32_t kProtectedShare = 8;

/// Makes fewer chunks resident where some would be evicted before their first use.
Residency decide_residency(const ChunkTrace& chunk_trace, const PlanOptions& options,
                           uint32_t num_spare, std::vector<ChunkRecord>& chunks) {
  const uint32_t num_protected = options.least_traffic ? 0 : options.num_blocks / kProtectedShare;
  uint32_t num_residents = most_residents(chunk_trace, options, num_spare);
  for (;;) {
    decide_residents(chunk_trace, options, num_residents, chunks);
    Residency residency(chunk_trace, options.num_blocks, num_protected, chunks);
    residency.read_blocks(&ChunkRecord::first_block, chunks);
    residency.run();
    if (residency.num_evicted_residents == 0) {
      residency.read_blocks(&ChunkRecord::last_block, chunks);
      return residency;
    }
    num_residents -= std::min(num_residents, residency.num_evicted_residents);
  }
}

Plan plan_chunk_trace(const ChunkTrace& chunk_trace, const Layout& layout,
                      const PlanOptions& options, ChunkDecisions decisions) {
  Plan plan;
  plan.chunks = std::move(decisions.chunks);
  plan.gradient_buffers = decisions.gradient_buffers;
  Residency residency = decide_residency(chunk_trace, options, decisions.num_spare, plan.chunks);
  plan.num_blocks = options.num_blocks;
  plan.division = options.division;
  plan.peak_blocks = residency.num_blocks_used();
  plan.stored_sums = residency.stored_sums;
  plan.stored_activations = residency.stored_activations;
  plan.ops.reserve(chunk_trace.items.size() + 2 * residency.assignments.size() +
                   residency.stores.size() + layout.num_chunks() + residency.blocks().size() + 1);
  plan.waits.reserve(plan.ops.capacity() + chunk_trace.needs.size());
  Emitter(chunk_trace, layout, options, residency, plan).run();
  return plan;
}

}  // namespace

uint32_t Plan::count(bool (ChunkRecord::*is)() const) const {
  return static_cast<uint32_t>(std::ranges::count_if(chunks, is));
}

std::vector<ChunkIndex> Plan::chunks_that(bool (ChunkRecord::*are)() const) const {
  std::vector<ChunkIndex> indices;
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    if ((chunks[c].*are)()) indices.push_back(c);
  }
  return indices;
}

std::vector<ChunkIndex> Plan::chunks_by(BlockIndex ChunkRecord::*block) const {
  std::vector<ChunkIndex> indices;
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    if (chunks[c].*block != kNone) indices.push_back(c);
  }
  std::ranges::sort(indices, {}, [&](ChunkIndex c) { return chunks[c].*block; });
  return indices;
}

const MoveInfo* find_move(Tier from, Tier to) {
  for (const MoveInfo& move : kMoves) {
    if (move.from == from && move.to == to) return &move;
  }
  return nullptr;
}

Op make_move(ChunkId chunk, Tier from, Tier to, BlockIndex block) {
  const MoveInfo* const move = find_move(from, to);
  EBB_CHECK(move != nullptr, "there is no such move");
  return {.kind = OpKind::Move,
          .stream = move->stream,
          .from = from,
          .to = to,
          .chunk = chunk,
          .block = block};
}

Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return make_plan(make_chunk_trace(trace, layout, options.update, options.division), trace, layout,
                   options);
}

Plan make_plan(const ChunkTrace& plain, const Trace& trace, const Layout& layout,
               const PlanOptions& options) {
  const uint32_t need = smallest_need(plain, trace).num_blocks;
  const uint32_t num_spare = options.num_blocks - std::min(options.num_blocks, need);
  ChunkDecisions decisions = decide_chunks(plain, layout, options, num_spare);
  const bool device_updates =
      options.update && std::ranges::any_of(decisions.chunks, &ChunkRecord::is_on_device);
  if (!device_updates) return plan_chunk_trace(plain, layout, options, std::move(decisions));
  const ChunkTrace updating = with_updates(plain, layout, decisions.chunks);
  return plan_chunk_trace(updating, layout, options, std::move(decisions));
}

Plan make_initialise_plan(const Plan& plan) {
  Plan initialise{.chunks = plan.chunks};
  for (ChunkRecord& chunk : initialise.chunks) {
    chunk.last_block = chunk.is_on_device() ? chunk.first_block : kNone;
    chunk.first_block = kNone;
  }
  for (const ChunkIndex c : initialise.chunks_by(&ChunkRecord::last_block)) {
    initialise.ops.push_back(
        make_move({Space::Weights, c}, Tier::None, Tier::Device, initialise.chunks[c].last_block));
  }
  return initialise;
}

/// Weights of other machines are fetched one after the other, to the first slot.
Plan make_warm_up_plan(const Plan& plan, const Layout& layout) {
  Plan warm_up{.chunks = plan.chunks, .fetch_slots = plan.fetch_slots};
  for (ChunkRecord& chunk : warm_up.chunks) {
    chunk.last_block = chunk.first_block;
    if (!chunk.is_on_device()) chunk.first_block = kNone;
  }
  const auto add = [&](Op op, OpIndex wait) {
    op.first_wait = static_cast<uint32_t>(warm_up.waits.size());
    op.num_waits = wait == kNone ? 0 : 1;
    if (wait != kNone) warm_up.waits.push_back(wait);
    warm_up.ops.push_back(op);
    return OpIndex(warm_up.ops.size() - 1);
  };
  OpIndex last_load = kNone;  // from the slot
  for (const ChunkIndex c : warm_up.chunks_by(&ChunkRecord::last_block)) {
    const ChunkRecord& chunk = warm_up.chunks[c];
    if (chunk.is_on_device()) continue;
    const ChunkId id{Space::Weights, c};
    Op load = make_move(id, Tier::Host, Tier::Device, chunk.last_block);
    warm_up.loaded_bytes += layout.used_bytes(id);
    if (chunk.is_near) {
      add(load, kNone);
      continue;
    }
    Op fetch = make_move(id, Tier::Peer, Tier::Host);
    load.slot = fetch.slot = BufferIndex(0);
    last_load = add(load, add(fetch, last_load));
    warm_up.fetched_bytes += layout.used_bytes(id);
  }
  return warm_up;
}

Plan make_flush_plan(const Plan& plan) {
  Plan flush{.chunks = plan.chunks};
  for (Op op : plan.ops) {
    if (!op.deferred || op.kind == OpKind::Receive) continue;
    op.first_wait = static_cast<uint32_t>(flush.waits.size());
    op.num_waits = 0;
    if (op.kind == OpKind::Send) {  // it follows its update
      flush.waits.push_back(OpIndex(flush.ops.size() - 1));
      op.num_waits = 1;
    }
    flush.ops.push_back(op);
  }
  for (ChunkRecord& chunk : flush.chunks) {
    chunk.first_block = chunk.last_block;
    if (!chunk.is_on_device()) chunk.last_block = kNone;
  }
  for (const ChunkIndex c : flush.chunks_by(&ChunkRecord::first_block)) {
    if (flush.chunks[c].is_on_device()) continue;
    flush.ops.push_back({.kind = OpKind::Drop,
                         .stream = StreamKind::Load,
                         .chunk = {Space::Weights, c},
                         .block = flush.chunks[c].first_block});
  }
  return flush;
}

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

std::vector<ChunkIndex> round_order(const ChunkTrace& chunk_trace) {
  std::vector<ChunkIndex> order;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    if (item.is_round()) order.push_back(item.rounded_chunk);
  }
  return order;
}

std::vector<ChunkIndex> round_order(const Trace& trace, const Layout& layout) {
  return round_order(make_chunk_trace(trace, layout, true));
}

}  // namespace ebb
