#include "scheduler/plan/plan.h"

#include <algorithm>

#include "chunk/home.h"
#include "scheduler/plan/emitter.h"
#include "scheduler/plan/program.h"
#include "scheduler/plan/residency.h"

namespace ebb {
namespace {

// A chunk rests while an eighth of the blocks change hands: 1-4 % more traffic than the least, but
// stores of gradient sums do not hold up the moments that need their blocks (GPT-3, two
// micro-batches: 1.005 x bound, without rest 1.16).
constexpr uint32_t kRestShare = 8;

// The next forward begins with them.
constexpr size_t kLastToFinish = 2;

/// Where each parameter chunk's gradient waits for its update, and which updates are carried: with
/// clipping all, and each gradient has a slot of its own. Without, a share, spread over the
/// backward, so that the optimizer is neither idle nor behind: those have slots of their own, and
/// the others go round.
std::vector<uint32_t> place_gradients(const Program& program, const Layout& layout,
                                      const PlanOptions& options, Plan& plan) {
  std::vector<uint32_t> slots(layout.num_chunks(), kNone);
  if (!options.update) return slots;
  std::vector<uint32_t> order;
  for (const ProgramItem& item : program.items) {
    if (item.is_finish() && !std::ranges::binary_search(plan.device_updates, item.finished_chunk)) {
      order.push_back(item.finished_chunk);
    }
  }
  const auto carries = [&](size_t position) {
    if (!options.carry_updates) return false;
    if (options.update_after_norm) return true;
    const auto up_to = [&](size_t i) {
      return static_cast<size_t>(options.carried_share * static_cast<double>(i));
    };
    return position + kLastToFinish < order.size() && up_to(position + 1) > up_to(position);
  };
  uint32_t num_carried = 0;
  for (size_t i = 0; i < order.size(); ++i) num_carried += carries(i);
  const uint32_t num_round =
      options.update_after_norm ? 0 : std::max(1u, options.num_gradient_slots);
  // As many slots as chunks: in their order, as the last chunk may be short, and its slot.
  const auto num_chunks = static_cast<uint32_t>(layout.num_chunks() - plan.device_updates.size());
  const bool own = options.update_after_norm || num_carried + num_round >= num_chunks;
  plan.num_gradient_slots = own ? num_chunks : num_carried + num_round;
  uint32_t next_carried = num_round, next_round = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    uint32_t& slot = slots[order[i]];
    slot = own          ? rank_at_home(plan.device_updates, order[i])
           : carries(i) ? next_carried++
                        : next_round++ % num_round;
    if (carries(i)) plan.carried.push_back({order[i], slot});
  }
  std::ranges::sort(plan.carried, {}, &CarriedUpdate::chunk);
  return slots;
}

/// So many of them, evenly; the last is one, and the first where all are.
std::vector<uint32_t> spread(const std::vector<uint32_t>& chunks, uint64_t most) {
  const uint64_t num = std::min<uint64_t>(most, chunks.size());
  std::vector<uint32_t> some;
  for (uint64_t i = 0; i < chunks.size(); ++i) {
    if ((i + 1) * num / chunks.size() > i * num / chunks.size()) some.push_back(chunks[i]);
  }
  return some;
}

/// Of the updates that are carried, as many, evenly spread over the order in which gradients are
/// finished: what is carried then comes between them, in the backward as in the next forward, and
/// neither has to wait for a row of updates. The last that is finished, with which the next forward
/// begins, is the last to be one. Only behind the last use of their weights.
void choose_speculated(const Program& program, uint32_t most, Plan& plan) {
  std::vector<uint32_t> last_use(program.num_dense(), 0);
  for (uint32_t i = 0; i < program.items.size(); ++i) {
    for (const ChunkUse& use : program.uses_of(program.items[i])) last_use[use.chunk] = i;
  }
  std::vector<uint32_t> fit;
  for (uint32_t i = 0; i < program.items.size(); ++i) {
    const ProgramItem& item = program.items[i];
    if (!item.is_finish()) continue;
    const uint32_t c = item.finished_chunk;
    const bool carried = std::ranges::binary_search(plan.carried, c, {}, &CarriedUpdate::chunk);
    if (carried && last_use[program.dense({Space::Weights, c})] < i) fit.push_back(c);
  }
  std::ranges::reverse(fit);
  plan.speculated = spread(fit, most);
  std::ranges::sort(plan.speculated);
}

std::vector<uint32_t> weights_of(const Program& program) {
  std::vector<uint32_t> weights;
  for (const ChunkUse& use : program.uses) {
    if (program.chunk_id(use.chunk).space == Space::Weights) weights.push_back(use.chunk);
  }
  std::ranges::sort(weights);
  weights.erase(std::unique(weights.begin(), weights.end()), weights.end());
  return weights;
}

uint32_t most_activations(const Program& program) {
  uint32_t most = 0, now = 0;
  for (const ProgramItem& item : program.items) {
    const auto num = [&](ArenaChunkEvent event) {
      return item.num_events[static_cast<int>(event)];
    };
    now += num(ArenaChunkEvent::Begin) + num(ArenaChunkEvent::Wake);
    most = std::max(most, now);
    now -= num(ArenaChunkEvent::Rest) + num(ArenaChunkEvent::End);
  }
  return most;
}

std::vector<uint32_t> living_on_device(const Program& program, const PlanOptions& options) {
  std::vector<uint32_t> weights;
  for (const uint32_t c : options.device_chunks)
    weights.push_back(program.dense({Space::Weights, c}));
  return weights;
}

/// The first that are finished, of those that this step reads and updates at home, and does not
/// carry.
std::vector<uint32_t> chunks_to_hold(const Program& program, const PlanOptions& options,
                                     const Plan& plan, uint32_t num) {
  if (!options.update && !options.device_chunks.empty()) return living_on_device(program, options);
  // What an evaluation loads comes between them.
  if (!options.update) return spread(weights_of(program), num);
  std::vector<bool> fit(program.num_dense(), false);
  for (const ChunkUse& use : program.uses) fit[use.chunk] = true;
  const auto is_out = [&](uint32_t c) { fit[program.dense({Space::Weights, c})] = false; };
  for (const CarriedUpdate& left : plan.carried) is_out(left.chunk);
  for (const uint32_t c : plan.device_updates) is_out(c);
  std::vector<uint32_t> held;
  for (const ProgramItem& item : program.items) {
    if (!item.is_finish() || held.size() == num) continue;
    const uint32_t c = program.dense({Space::Weights, item.finished_chunk});
    if (fit[c]) held.push_back(c);
  }
  return held;
}

/// The last that are finished: the next forward begins with them.
DeviceUpdates choose_device_updates(const Program& program, const Layout& layout,
                                    const PlanOptions& options, uint32_t num_spare) {
  DeviceUpdates updates{.at_end = options.update_after_norm};
  if (!options.update) return updates;
  const uint32_t most =
      std::min(options.num_device_updates,
               num_spare / blocks_of_device_update(layout, options.update_after_norm));
  for (auto item = program.items.rbegin(); item != program.items.rend(); ++item) {
    if (updates.chunks.size() == most) break;
    if (item->is_finish()) updates.chunks.push_back(item->finished_chunk);
  }
  std::ranges::sort(updates.chunks);
  return updates;
}

/// Fewer are held where some would have to leave before they are used.
Residency decide_residency(const Program& program, const PlanOptions& options, uint32_t num_spare,
                           Plan& plan) {
  const uint32_t num_rest = options.least_traffic ? 0 : options.num_blocks / kRestShare;
  const bool can_hold = !options.update || !options.update_after_norm;
  // All weights of an evaluation: then no moment needs blocks for them beside those.
  const bool all = !options.update && options.num_held > num_spare &&
                   weights_of(program).size() + most_activations(program) <= options.num_blocks;
  uint32_t num_held = !can_hold ? 0
                      : all     ? options.num_held
                                : std::min(options.num_held, num_spare);
  for (;;) {
    Residency residency(program, options.num_blocks, num_rest,
                        chunks_to_hold(program, options, plan, num_held));
    plan.held_at_start = residency.weights_here();
    residency.run();
    if (residency.num_held_in_vain == 0) return residency;
    num_held -= std::min(num_held, residency.num_held_in_vain);
  }
}

Plan plan_program(const Program& program, const Layout& layout, const PlanOptions& options,
                  uint32_t num_spare, std::vector<uint32_t> device_updates) {
  Plan plan;
  plan.device_updates = std::move(device_updates);
  std::vector<uint32_t> gradient_slots = place_gradients(program, layout, options, plan);
  if (options.update && options.update_after_norm) {
    choose_speculated(program, options.num_speculated, plan);
  }
  Residency residency = decide_residency(program, options, num_spare, plan);
  plan.num_blocks = options.num_blocks;
  plan.peak_blocks = residency.num_blocks_used();
  plan.sums_at_home.assign(residency.sums_gone_home.begin(), residency.sums_gone_home.end());
  plan.activations_at_home.assign(residency.activations_gone_home.begin(),
                                  residency.activations_gone_home.end());
  plan.held_at_end = residency.weights_here();
  plan.ops.reserve(program.items.size() + 2 * residency.brings.size() + residency.stores.size() +
                   layout.num_chunks() + residency.blocks().size() + 1);
  plan.waits.reserve(plan.ops.capacity() + program.needs.size());
  Emitter(program, layout, options, residency, std::move(gradient_slots), plan).run();
  return plan;
}

bool lives_on_device(const Plan& plan, const HeldChunk& held) {
  return std::ranges::binary_search(plan.device_updates, held.chunk);
}

}  // namespace

Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return make_plan(make_program(trace, layout, options.update), trace, layout, options);
}

Plan make_plan(const Program& plain, const Trace& trace, const Layout& layout,
               const PlanOptions& options) {
  const uint32_t need = smallest_need(plain, trace).num_blocks;
  const uint32_t num_spare = options.num_blocks - std::min(options.num_blocks, need);
  const DeviceUpdates updates = choose_device_updates(plain, layout, options, num_spare);
  if (updates.chunks.empty()) return plan_program(plain, layout, options, num_spare, {});
  const auto num_updates = static_cast<uint32_t>(updates.chunks.size());
  return plan_program(
      with_updates(plain, layout, updates), layout, options,
      num_spare - num_updates * blocks_of_device_update(layout, options.update_after_norm),
      updates.chunks);
}

Plan make_settle_plan(const Plan& plan) {
  Plan settle;
  for (const HeldChunk& held : plan.held_at_start) {
    if (!lives_on_device(plan, held)) continue;
    settle.held_at_end.push_back(held);
    settle.ops.push_back({.kind = OpKind::Move,
                          .lane = Lane::Compute,
                          .from = Tier::None,
                          .to = Tier::Device,
                          .chunk = {Space::Weights, held.chunk},
                          .block = held.block});
  }
  return settle;
}

Plan make_fill_plan(const Plan& plan, const Layout& layout) {
  Plan fill;
  fill.held_at_end = plan.held_at_start;
  for (const HeldChunk& held : fill.held_at_end) {
    const ChunkId id{Space::Weights, held.chunk};
    if (lives_on_device(plan, held)) {
      fill.held_at_start.push_back(held);
      continue;
    }
    fill.ops.push_back({.kind = OpKind::Move,
                        .lane = Lane::Load,
                        .from = Tier::Host,
                        .to = Tier::Device,
                        .chunk = id,
                        .block = held.block});
    fill.loaded_bytes += layout.used_bytes(id);
  }
  return fill;
}

Plan make_drain_plan(const Plan& plan) {
  Plan drain;
  for (const Op& op : plan.ops) {
    if (op.carried) drain.ops.push_back(op);
  }
  drain.held_at_start = plan.held_at_end;
  for (const HeldChunk& held : drain.held_at_start) {
    if (lives_on_device(plan, held)) {
      drain.held_at_end.push_back(held);
      continue;
    }
    drain.ops.push_back({.kind = OpKind::Drop,
                         .lane = Lane::Load,
                         .chunk = {Space::Weights, held.chunk},
                         .block = held.block});
  }
  return drain;
}

BlockNeed smallest_need(const Program& program, const Trace& trace) {
  BlockNeed most;
  uint32_t num_activations = 0;
  for (const ProgramItem& item : program.items) {
    const auto num = [&](ArenaChunkEvent event) {
      return item.num_events[static_cast<int>(event)];
    };
    num_activations += num(ArenaChunkEvent::Begin) + num(ArenaChunkEvent::Wake);
    BlockNeed need;
    need.by_space[static_cast<int>(Space::Activations)] = num_activations;
    need.moment = item.moment == kNone ? "finish a gradient" : trace.moments[item.moment].name;
    need.num_blocks = num_activations + item.num_uses;
    for (const ChunkUse& use : program.uses_of(item)) {
      ++need.by_space[static_cast<int>(program.chunk_id(use.chunk).space)];
    }
    if (need.num_blocks > most.num_blocks) most = need;
    num_activations -= num(ArenaChunkEvent::Rest) + num(ArenaChunkEvent::End);
  }
  return most;
}

BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update) {
  return smallest_need(make_program(trace, layout, update), trace);
}

uint32_t resident_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return peak_of_chunks(make_program(trace, layout, options.update));
}

uint32_t blocks_of_device_update(const Layout& layout, bool after_norm) {
  return 1 + (after_norm ? layout.gradient_chunks_per_chunk() : 0);
}

std::vector<uint32_t> finish_order(const Trace& trace, const Layout& layout) {
  std::vector<uint32_t> order;
  for (const ProgramItem& item : make_program(trace, layout, true).items) {
    if (item.is_finish()) order.push_back(item.finished_chunk);
  }
  return order;
}

}  // namespace ebb
