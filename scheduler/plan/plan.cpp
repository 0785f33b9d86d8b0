#include "scheduler/plan/plan.h"

#include <algorithm>

#include "chunk/home.h"
#include "device/errors.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/emitter.h"
#include "scheduler/plan/residency.h"

namespace ebb {
namespace {

// A chunk is protected while an eighth of the blocks get other chunks. This is 1-4 % more traffic
// than the least, but calls do not wait for blocks from which gradient sums are still being stored
// (GPT-3 with two micro-batches, simulated: 1.005 x the bound, and 1.16 x without protection).
constexpr uint32_t kProtectedShare = 8;

// Their updates are not deferred, because the next forward begins with their weights.
constexpr size_t kLastToFinish = 2;

/// Decides which updates are deferred, and returns the gradient buffer of each parameter chunk.
/// With clipping all updates are deferred, and each gradient has a buffer of its own. Without, a
/// share is deferred, spread over the backward so that the optimizer is always busy: those
/// gradients have buffers of their own, and the others use the remaining buffers in rotation.
std::vector<uint32_t> assign_gradient_buffers(const ChunkTrace& chunk_trace, const Layout& layout,
                                              const PlanOptions& options, Plan& plan) {
  std::vector<uint32_t> slots(layout.num_chunks(), kNone);
  if (!options.update) return slots;
  std::vector<uint32_t> order;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    if (item.is_round() && !std::ranges::binary_search(plan.device_updates, item.rounded_chunk)) {
      order.push_back(item.rounded_chunk);
    }
  }
  const auto defers = [&](size_t position) {
    if (!options.defer_updates) return false;
    if (options.update_after_norm) return true;
    const auto up_to = [&](size_t i) {
      return static_cast<size_t>(options.deferred_share * static_cast<double>(i));
    };
    return position + kLastToFinish < order.size() && up_to(position + 1) > up_to(position);
  };
  uint32_t num_deferred = 0;
  for (size_t i = 0; i < order.size(); ++i) num_deferred += defers(i);
  const uint32_t num_round = options.update_after_norm ? 0 : std::max(1u, options.gradient_buffers);
  // With a buffer for every chunk, buffers are in chunk order: the last chunk and its buffer may be
  // short.
  const auto num_chunks = static_cast<uint32_t>(layout.num_chunks() - plan.device_updates.size());
  const bool own = options.update_after_norm || num_deferred + num_round >= num_chunks;
  plan.gradient_buffers = own ? num_chunks : num_deferred + num_round;
  uint32_t next_deferred = num_round, next_round = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    uint32_t& slot = slots[order[i]];
    slot = own         ? host_index(plan.device_updates, order[i])
           : defers(i) ? next_deferred++
                       : next_round++ % num_round;
    if (defers(i)) plan.deferred.push_back({order[i], slot});
  }
  std::ranges::sort(plan.deferred, {}, &DeferredUpdate::chunk);
  return slots;
}

/// Chooses at most `most` of the chunks, evenly spread; the last one is always among them.
std::vector<uint32_t> spread(const std::vector<uint32_t>& chunks, uint64_t most) {
  const uint64_t num = std::min<uint64_t>(most, chunks.size());
  std::vector<uint32_t> some;
  for (uint64_t i = 0; i < chunks.size(); ++i) {
    if ((i + 1) * num / chunks.size() > i * num / chunks.size()) some.push_back(chunks[i]);
  }
  return some;
}

/// Chooses the speculative updates among the deferred ones, evenly spread over the order in which
/// gradients are rounded. So updates that are deferred lie between them, in the backward and in the
/// next forward, and neither waits for many updates in a row. The chunk that is rounded last is
/// chosen last, because the next forward begins with it. A chunk qualifies if nothing reads its
/// weights after its gradient is rounded.
void choose_speculated(const ChunkTrace& chunk_trace, uint32_t most, Plan& plan) {
  std::vector<uint32_t> last_use(chunk_trace.num_flat(), 0);
  for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
    for (const ChunkUse& use : chunk_trace.uses_of(chunk_trace.items[i])) last_use[use.chunk] = i;
  }
  std::vector<uint32_t> fit;
  for (uint32_t i = 0; i < chunk_trace.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace.items[i];
    if (!item.is_round()) continue;
    const uint32_t c = item.rounded_chunk;
    const bool deferred = std::ranges::binary_search(plan.deferred, c, {}, &DeferredUpdate::chunk);
    if (deferred && last_use[chunk_trace.flat_index({Space::Weights, c})] < i) fit.push_back(c);
  }
  std::ranges::reverse(fit);
  plan.speculated = spread(fit, most);
  std::ranges::sort(plan.speculated);
}

std::vector<uint32_t> weights_of(const ChunkTrace& chunk_trace) {
  std::vector<uint32_t> weights;
  for (const ChunkUse& use : chunk_trace.uses) {
    if (chunk_trace.chunk_id(use.chunk).space == Space::Weights) weights.push_back(use.chunk);
  }
  std::ranges::sort(weights);
  weights.erase(std::unique(weights.begin(), weights.end()), weights.end());
  return weights;
}

uint32_t most_activations(const ChunkTrace& chunk_trace) {
  uint32_t most = 0, now = 0;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    const auto num = [&](ArenaChunkEvent event) {
      return item.num_events[static_cast<int>(event)];
    };
    now += num(ArenaChunkEvent::Begin) + num(ArenaChunkEvent::Needed);
    most = std::max(most, now);
    now -= num(ArenaChunkEvent::Idle) + num(ArenaChunkEvent::End);
  }
  return most;
}

std::vector<uint32_t> living_on_device(const ChunkTrace& chunk_trace, const PlanOptions& options) {
  std::vector<uint32_t> weights;
  for (const uint32_t c : options.device_chunks)
    weights.push_back(chunk_trace.flat_index({Space::Weights, c}));
  return weights;
}

/// The chunks that are rounded first, of those that this step reads and updates on the host,
/// without deferred updates.
std::vector<uint32_t> choose_residents(const ChunkTrace& chunk_trace, const PlanOptions& options,
                                       const Plan& plan, uint32_t num) {
  if (!options.update && !options.device_chunks.empty())
    return living_on_device(chunk_trace, options);
  // In an evaluation the chunks that are loaded lie between the resident ones.
  if (!options.update) return spread(weights_of(chunk_trace), num);
  std::vector<bool> fit(chunk_trace.num_flat(), false);
  for (const ChunkUse& use : chunk_trace.uses) fit[use.chunk] = true;
  const auto is_out = [&](uint32_t c) { fit[chunk_trace.flat_index({Space::Weights, c})] = false; };
  for (const DeferredUpdate& left : plan.deferred) is_out(left.chunk);
  for (const uint32_t c : plan.device_updates) is_out(c);
  std::vector<uint32_t> resident;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    if (!item.is_round() || resident.size() == num) continue;
    const uint32_t c = chunk_trace.flat_index({Space::Weights, item.rounded_chunk});
    if (fit[c]) resident.push_back(c);
  }
  return resident;
}

/// The chunks that are rounded last, because the next forward begins with them.
DeviceUpdates choose_device_updates(const ChunkTrace& chunk_trace, const Layout& layout,
                                    const PlanOptions& options, uint32_t num_spare) {
  DeviceUpdates updates{.at_end = options.update_after_norm};
  if (!options.update) return updates;
  const uint32_t most =
      std::min(options.device_updates,
               num_spare / blocks_of_device_update(layout, options.update_after_norm));
  for (auto item = chunk_trace.items.rbegin(); item != chunk_trace.items.rend(); ++item) {
    if (updates.chunks.size() == most) break;
    if (item->is_round()) updates.chunks.push_back(item->rounded_chunk);
  }
  std::ranges::sort(updates.chunks);
  return updates;
}

/// Makes fewer chunks resident where some would be evicted before their first use.
Residency decide_residency(const ChunkTrace& chunk_trace, const PlanOptions& options,
                           uint32_t num_spare, Plan& plan) {
  const uint32_t num_protected = options.least_traffic ? 0 : options.num_blocks / kProtectedShare;
  const bool can_keep_resident = !options.update || !options.update_after_norm;
  // All weights of an evaluation are resident: then no call needs further blocks for weights.
  const bool all =
      !options.update && options.resident_chunks > num_spare &&
      weights_of(chunk_trace).size() + most_activations(chunk_trace) <= options.num_blocks;
  uint32_t resident_chunks = !can_keep_resident ? 0
                             : all              ? options.resident_chunks
                                                : std::min(options.resident_chunks, num_spare);
  for (;;) {
    Residency residency(chunk_trace, options.num_blocks, num_protected,
                        choose_residents(chunk_trace, options, plan, resident_chunks));
    plan.resident_at_start = residency.weights_here();
    residency.run();
    if (residency.num_evicted_residents == 0) return residency;
    resident_chunks -= std::min(resident_chunks, residency.num_evicted_residents);
  }
}

Plan plan_chunk_trace(const ChunkTrace& chunk_trace, const Layout& layout,
                      const PlanOptions& options, uint32_t num_spare,
                      std::vector<uint32_t> device_updates) {
  Plan plan;
  plan.device_updates = std::move(device_updates);
  std::vector<uint32_t> gradient_buffers =
      assign_gradient_buffers(chunk_trace, layout, options, plan);
  if (options.update && options.update_after_norm) {
    choose_speculated(chunk_trace, options.speculated_chunks, plan);
  }
  Residency residency = decide_residency(chunk_trace, options, num_spare, plan);
  plan.num_blocks = options.num_blocks;
  plan.peak_blocks = residency.num_blocks_used();
  plan.stored_sums.assign(residency.stored_sums.begin(), residency.stored_sums.end());
  plan.stored_activations.assign(residency.stored_activations.begin(),
                                 residency.stored_activations.end());
  plan.resident_at_end = residency.weights_here();
  plan.ops.reserve(chunk_trace.items.size() + 2 * residency.assignments.size() +
                   residency.stores.size() + layout.num_chunks() + residency.blocks().size() + 1);
  plan.waits.reserve(plan.ops.capacity() + chunk_trace.needs.size());
  Emitter(chunk_trace, layout, options, residency, std::move(gradient_buffers), plan).run();
  return plan;
}

bool lives_on_device(const Plan& plan, const ResidentChunk& resident) {
  return std::ranges::binary_search(plan.device_updates, resident.chunk);
}

}  // namespace

const MoveInfo* find_move(Tier from, Tier to) {
  for (const MoveInfo& move : kMoves) {
    if (move.from == from && move.to == to) return &move;
  }
  return nullptr;
}

Op make_move(ChunkId chunk, Tier from, Tier to, uint32_t block) {
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
  return make_plan(make_chunk_trace(trace, layout, options.update), trace, layout, options);
}

Plan make_plan(const ChunkTrace& plain, const Trace& trace, const Layout& layout,
               const PlanOptions& options) {
  const uint32_t need = smallest_need(plain, trace).num_blocks;
  const uint32_t num_spare = options.num_blocks - std::min(options.num_blocks, need);
  const DeviceUpdates updates = choose_device_updates(plain, layout, options, num_spare);
  if (updates.chunks.empty()) return plan_chunk_trace(plain, layout, options, num_spare, {});
  const auto num_updates = static_cast<uint32_t>(updates.chunks.size());
  return plan_chunk_trace(
      with_updates(plain, layout, updates), layout, options,
      num_spare - num_updates * blocks_of_device_update(layout, options.update_after_norm),
      updates.chunks);
}

Plan make_initialise_plan(const Plan& plan) {
  Plan initialise;
  for (const ResidentChunk& resident : plan.resident_at_start) {
    if (!lives_on_device(plan, resident)) continue;
    initialise.resident_at_end.push_back(resident);
    initialise.ops.push_back(
        make_move({Space::Weights, resident.chunk}, Tier::None, Tier::Device, resident.block));
  }
  return initialise;
}

Plan make_warm_up_plan(const Plan& plan, const Layout& layout) {
  Plan warm_up;
  warm_up.resident_at_end = plan.resident_at_start;
  for (const ResidentChunk& resident : warm_up.resident_at_end) {
    const ChunkId id{Space::Weights, resident.chunk};
    if (lives_on_device(plan, resident)) {
      warm_up.resident_at_start.push_back(resident);
      continue;
    }
    warm_up.ops.push_back(make_move(id, Tier::Host, Tier::Device, resident.block));
    warm_up.loaded_bytes += layout.used_bytes(id);
  }
  return warm_up;
}

Plan make_flush_plan(const Plan& plan) {
  Plan flush;
  for (const Op& op : plan.ops) {
    if (op.deferred) flush.ops.push_back(op);
  }
  flush.resident_at_start = plan.resident_at_end;
  for (const ResidentChunk& resident : flush.resident_at_start) {
    if (lives_on_device(plan, resident)) {
      flush.resident_at_end.push_back(resident);
      continue;
    }
    flush.ops.push_back({.kind = OpKind::Drop,
                         .stream = StreamKind::Load,
                         .chunk = {Space::Weights, resident.chunk},
                         .block = resident.block});
  }
  return flush;
}

BlockNeed smallest_need(const ChunkTrace& chunk_trace, const Trace& trace) {
  BlockNeed most;
  uint32_t num_activations = 0;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    const auto num = [&](ArenaChunkEvent event) {
      return item.num_events[static_cast<int>(event)];
    };
    num_activations += num(ArenaChunkEvent::Begin) + num(ArenaChunkEvent::Needed);
    BlockNeed need;
    need.by_space[static_cast<int>(Space::Activations)] = num_activations;
    need.call = item.call == kNone ? "round a gradient" : trace.calls[item.call].name;
    need.num_blocks = num_activations + item.num_uses;
    for (const ChunkUse& use : chunk_trace.uses_of(item)) {
      ++need.by_space[static_cast<int>(chunk_trace.chunk_id(use.chunk).space)];
    }
    if (need.num_blocks > most.num_blocks) most = need;
    num_activations -= num(ArenaChunkEvent::Idle) + num(ArenaChunkEvent::End);
  }
  return most;
}

BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update) {
  return smallest_need(make_chunk_trace(trace, layout, update), trace);
}

uint32_t full_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return peak_of_chunks(make_chunk_trace(trace, layout, options.update));
}

uint32_t blocks_of_device_update(const Layout& layout, bool after_norm) {
  return 1 + (after_norm ? layout.gradient_chunks_per_chunk() : 0);
}

std::vector<uint32_t> round_order(const Trace& trace, const Layout& layout) {
  std::vector<uint32_t> order;
  for (const ChunkTraceItem& item : make_chunk_trace(trace, layout, true).items) {
    if (item.is_round()) order.push_back(item.rounded_chunk);
  }
  return order;
}

}  // namespace ebb
