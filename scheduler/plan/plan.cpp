#include "scheduler/plan/plan.h"

#include <algorithm>
#include <utility>

#include "scheduler/plan/block_need.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/decide_chunks.h"
#include "scheduler/plan/emitter.h"
#include "scheduler/plan/residency.h"
#include "scheduler/plan/split_loads.h"

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

Tier source_of(ChunkId chunk, const Plan& plan) {
  const bool is_on_owner = chunk.space == Space::Weights && plan.chunks[chunk.index].is_on_owner();
  return is_on_owner ? Tier::Peer : Tier::Host;
}

size_t bytes_of_move(const Op& move, const Layout& layout, const Division& division) {
  const size_t bytes = layout.used_bytes(move.chunk);
  if (move.split != kNone && !is_gather(move)) {
    return part_of_load(bytes, division.place, division.place.rank).count;
  }
  return stores_sums(move) ? division.stored_bytes(bytes) : bytes;
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
    Op load = make_move(id, source_of(id, plan), Tier::Device, chunk.last_block);
    warm_up.loaded_bytes += layout.used_bytes(id);
    if (is_gather(load)) warm_up.gathered_bytes += layout.used_bytes(id);
    if (chunk.is_near) {
      add(load, kNone);
      continue;
    }
    Op fetch = make_fetch(id, chunk.owner);
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

}  // namespace ebb
