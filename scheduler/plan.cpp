#include "scheduler/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "scheduler/program.h"
#include "scheduler/residency.h"

namespace ebb {
namespace {

// A chunk rests while an eighth of the blocks change hands: 1-4 % more traffic than the least, but
// stores of gradient sums do not hold up the moments that need their blocks (GPT-3, two
// micro-batches: 1.005 x bound, without rest 1.16).
constexpr uint32_t kRestShare = 8;

// Two updates of five run beside the next forward. It is a third of a step's compute, but half of
// its loads, and an optimizer that is as busy as either takes as long.
constexpr uint32_t kCarriedOf = 5;
constexpr bool kCarried[kCarriedOf] = {false, true, false, true, false};

/// Where each parameter chunk's gradient waits for its update, and which updates are carried: with
/// clipping all, and each gradient has a slot of its own. Without, one of every few, spread over
/// the backward, so that the optimizer is neither idle nor behind: those have slots of their own,
/// and the others go round. Not the last to finish: the next forward begins with them.
std::vector<uint32_t> place_gradients(const Program& program, const Layout& layout,
                                      const PlanOptions& options, Plan& plan) {
  std::vector<uint32_t> slots(layout.num_chunks(), kNone);
  if (!options.update) return slots;
  std::vector<uint32_t> order;
  for (const ProgramItem& item : program.items) {
    if (item.moment == kNone) order.push_back(item.finished_chunk);
  }
  const auto carries = [&](size_t position) {
    if (!options.carry_updates) return false;
    const bool last = position + kCarriedOf > order.size();
    return options.update_after_norm || (kCarried[position % kCarriedOf] && !last);
  };
  uint32_t num_carried = 0;
  for (size_t i = 0; i < order.size(); ++i) num_carried += carries(i);
  const uint32_t num_round =
      options.update_after_norm ? 0 : std::max(1u, options.num_gradient_slots);
  // As many slots as chunks: slot c that of chunk c, as the last chunk may be short, and its slot.
  const bool own = options.update_after_norm || num_carried + num_round >= layout.num_chunks();
  plan.num_gradient_slots = own ? layout.num_chunks() : num_carried + num_round;
  uint32_t next_carried = num_round, next_round = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    uint32_t& slot = slots[order[i]];
    slot = own ? order[i] : carries(i) ? next_carried++ : next_round++ % num_round;
    if (carries(i)) plan.carried.push_back({order[i], slot});
  }
  std::ranges::sort(plan.carried, {}, &CarriedUpdate::chunk);
  return slots;
}

/// Second pass: the list of operations with what each waits for.
class Emitter {
 public:
  Emitter(const Program& program, const Layout& layout, const PlanOptions& options,
          Residency& residency, std::vector<uint32_t> gradient_slots, Plan& plan)
      : program_(program),
        layout_(layout),
        options_(options),
        residency_(residency),
        plan_(plan),
        slot_of_chunk_(std::move(gradient_slots)) {}
  void run();

 private:
  uint32_t emit(Op op, std::initializer_list<uint32_t> waits);
  void emit_item(uint32_t item);
  void emit_stores_after(uint32_t item);
  void emit_store(Store& store);
  void emit_brings_after(uint32_t position);
  void emit_bring(const Bring& bring);
  void emit_drop(uint32_t chunk, uint32_t block, uint32_t last_item, uint32_t store);
  void emit_update(uint32_t parameter_chunk, uint32_t wait);
  void emit_carried_updates();
  void emit_end();
  uint32_t item_op(uint32_t item) const { return item == kStart ? kNone : op_of_item_[item]; }
  uint32_t store_op(uint32_t store) const {
    return store == kNone ? kNone : residency_.stores[store].op;
  }
  /// The update that makes a chunk's weights what this step loads.
  uint32_t update_before(ChunkId id) const {
    return id.space == Space::Weights ? carried_update_[id.index] : kNone;
  }

  const Program& program_;
  const Layout& layout_;
  const PlanOptions& options_;
  Residency& residency_;
  Plan& plan_;
  std::vector<uint32_t> op_of_item_;
  std::vector<uint32_t> pending_bring_;  // [chunk] the bring that no item has waited for yet
  size_t next_bring_ = 0;
  std::vector<uint32_t> store_order_;  // stores by after_item
  size_t next_store_ = 0;
  std::vector<uint32_t> slot_of_chunk_;  // [parameter chunk] gradient slot
  std::vector<uint32_t> last_update_of_slot_;
  std::vector<uint32_t> carried_update_;  // [parameter chunk] at the start of this step
  std::vector<uint32_t> finished_;        // parameter chunks, in order
  std::vector<uint32_t> parts_stored_;    // [parameter chunk] gradient chunks stored
  uint32_t last_gradient_store_ = kNone;
};

uint32_t Emitter::emit(Op op, std::initializer_list<uint32_t> waits) {
  op.first_wait = static_cast<uint32_t>(plan_.waits.size());
  for (uint32_t w : waits) {
    if (w != kNone) plan_.waits.push_back(w);
  }
  op.num_waits = static_cast<uint32_t>(plan_.waits.size()) - op.first_wait;
  plan_.ops.push_back(op);
  return static_cast<uint32_t>(plan_.ops.size() - 1);
}

void Emitter::emit_drop(uint32_t chunk, uint32_t block, uint32_t last_item, uint32_t store) {
  emit(
      {.kind = OpKind::Drop, .lane = Lane::Load, .chunk = program_.chunk_id(chunk), .block = block},
      {item_op(last_item), store_op(store)});
}

void Emitter::emit_bring(const Bring& bring) {
  if (bring.victim != kNone) {
    emit_drop(bring.victim, bring.block, bring.victim_item, bring.victim_store);
  }
  const ChunkId id = program_.chunk_id(bring.chunk);
  pending_bring_[bring.chunk] = emit({.kind = OpKind::Move,
                                      .lane = Lane::Load,
                                      .from = bring.copy ? Tier::Host : Tier::None,
                                      .to = Tier::Device,
                                      .chunk = id,
                                      .block = bring.block},
                                     {store_op(bring.own_store), update_before(id)});
  if (bring.copy) plan_.loaded_bytes += layout_.used_bytes(id);
}

void Emitter::emit_brings_after(uint32_t position) {
  auto& brings = residency_.brings;
  while (next_bring_ < brings.size() &&
         order_of(brings[next_bring_].position) <= order_of(position)) {
    emit_bring(brings[next_bring_++]);
  }
}

void Emitter::emit_item(uint32_t i) {
  const ProgramItem& item = program_.items[i];
  Op op{.kind = OpKind::Run, .moment = item.moment};
  if (item.moment == kNone) {
    op = Op{.kind = OpKind::Finish, .chunk = {Space::Weights, item.finished_chunk}};
  }
  const uint32_t index = emit(op, {});
  const auto wait_for = [&](uint32_t chunk) {
    if (pending_bring_[chunk] == kNone) return;
    plan_.waits.push_back(std::exchange(pending_bring_[chunk], kNone));
    ++plan_.ops[index].num_waits;
  };
  for (uint32_t c : program_.chunks_of(item, ArenaChunkEvent::Begin)) wait_for(c);
  for (uint32_t c : program_.chunks_of(item, ArenaChunkEvent::Wake)) wait_for(c);
  for (const ChunkUse& use : program_.uses_of(item)) wait_for(use.chunk);
  op_of_item_[i] = index;
}

void Emitter::emit_update(uint32_t c, uint32_t wait) {
  const uint32_t slot = slot_of_chunk_[c];
  last_update_of_slot_[slot] = emit({.kind = OpKind::Update,
                                     .lane = Lane::Update,
                                     .chunk = {Space::Weights, c},
                                     .home_slot = slot},
                                    {wait});
}

void Emitter::emit_carried_updates() {
  carried_update_.assign(layout_.num_chunks(), kNone);
  for (const CarriedUpdate& left : plan_.carried) {
    const Op update{.kind = OpKind::Update,
                    .lane = Lane::Update,
                    .chunk = {Space::Weights, left.chunk},
                    .home_slot = left.gradient_slot,
                    .carried = true};
    carried_update_[left.chunk] = last_update_of_slot_[left.gradient_slot] = emit(update, {});
  }
}

void Emitter::emit_store(Store& store) {
  const ChunkId id = program_.chunk_id(store.chunk);
  Op op{.kind = OpKind::Move,
        .lane = Lane::Store,
        .from = Tier::Device,
        .to = Tier::Host,
        .chunk = id};
  plan_.stored_bytes += layout_.used_bytes(id);
  if (id.space != Space::Gradients) {
    store.op = emit(op, {item_op(store.after_item)});
    return;
  }
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  const uint32_t c = id.index / parts;
  if (parts_stored_[c] == 0) finished_.push_back(c);
  op.home_slot = slot_of_chunk_[c];
  store.op = emit(op, {item_op(store.after_item), last_update_of_slot_[op.home_slot]});
  last_gradient_store_ = store.op;
  const uint32_t num_parts =
      std::min<uint32_t>(parts, layout_.num_chunks(Space::Gradients) - c * parts);
  const bool now = !options_.update_after_norm && carried_update_[c] == kNone;
  if (++parts_stored_[c] == num_parts && now) emit_update(c, store.op);
}

void Emitter::emit_stores_after(uint32_t item) {
  while (next_store_ < store_order_.size() &&
         residency_.stores[store_order_[next_store_]].after_item == item) {
    emit_store(residency_.stores[store_order_[next_store_++]]);
  }
}

void Emitter::emit_end() {
  if (options_.update) {
    const uint32_t norm =
        emit({.kind = OpKind::Norm, .lane = Lane::Update}, {last_gradient_store_});
    if (options_.update_after_norm && !options_.carry_updates) {
      std::sort(finished_.begin(), finished_.end());
      for (uint32_t c : finished_) emit_update(c, norm);
    }
  }
  for (uint32_t b = 0; b < residency_.blocks().size(); ++b) {
    const Residency::Block& block = residency_.blocks()[b];
    if (block.chunk != kNone) emit_drop(block.chunk, b, block.free_after, block.store);
  }
}

void Emitter::run() {
  auto& brings = residency_.brings;
  std::stable_sort(brings.begin(), brings.end(), [](const Bring& a, const Bring& b) {
    return std::pair(order_of(a.position), a.deadline) <
           std::pair(order_of(b.position), b.deadline);
  });
  store_order_.resize(residency_.stores.size());
  for (uint32_t s = 0; s < store_order_.size(); ++s) store_order_[s] = s;
  std::stable_sort(store_order_.begin(), store_order_.end(), [&](uint32_t a, uint32_t b) {
    return residency_.stores[a].after_item < residency_.stores[b].after_item;
  });
  op_of_item_.assign(program_.items.size(), kNone);
  pending_bring_.assign(program_.num_dense(), kNone);
  parts_stored_.assign(layout_.num_chunks(), 0);
  last_update_of_slot_.assign(std::max(plan_.num_gradient_slots, layout_.num_chunks()), kNone);

  emit_carried_updates();
  emit_brings_after(kStart);
  for (uint32_t i = 0; i < program_.items.size(); ++i) {
    emit_item(i);
    emit_stores_after(i);
    emit_brings_after(i);
  }
  emit_end();
}

}  // namespace

std::string_view name_of(OpKind kind) {
  static constexpr std::string_view kNames[] = {"run", "finish", "update", "norm", "move", "drop"};
  return kNames[static_cast<int>(kind)];
}

Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return make_plan(make_program(trace, layout, options.update), layout, options);
}

Plan make_plan(const Program& program, const Layout& layout, const PlanOptions& options) {
  Residency residency(program, options.num_blocks,
                      options.least_traffic ? 0 : options.num_blocks / kRestShare);
  residency.run();
  Plan plan;
  plan.num_blocks = options.num_blocks;
  plan.peak_blocks = residency.num_blocks_used();
  plan.sums_at_home.assign(residency.sums_gone_home.begin(), residency.sums_gone_home.end());
  plan.activations_at_home.assign(residency.activations_gone_home.begin(),
                                  residency.activations_gone_home.end());
  std::vector<uint32_t> gradient_slots = place_gradients(program, layout, options, plan);
  plan.ops.reserve(program.items.size() + 2 * residency.brings.size() + residency.stores.size() +
                   layout.num_chunks() + residency.blocks().size() + 1);
  Emitter(program, layout, options, residency, std::move(gradient_slots), plan).run();
  return plan;
}

Plan make_drain_plan(const Plan& plan) {
  Plan drain;
  for (const Op& op : plan.ops) {
    if (op.carried) drain.ops.push_back(op);
  }
  return drain;
}

BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update) {
  return smallest_need(make_program(trace, layout, update), trace);
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

uint32_t resident_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  return peak_of_chunks(make_program(trace, layout, options.update));
}

std::vector<uint32_t> finish_order(const Trace& trace, const Layout& layout) {
  std::vector<uint32_t> order;
  for (const ProgramItem& item : make_program(trace, layout, true).items) {
    if (item.moment == kNone) order.push_back(item.finished_chunk);
  }
  return order;
}

std::string to_string(const Plan& plan, const Trace& trace) {
  std::string text;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    text += fmt::format("{:>6} {:<6}", i, name_of(op.kind));
    if (op.kind == OpKind::Run) {
      const Moment& m = trace.moments[op.moment];
      text += fmt::format(" {} {} {}", op.moment, name_of(m.phase), m.name);
    } else if (op.kind != OpKind::Norm) {
      text += fmt::format(" {} {}", name_of(op.chunk.space), op.chunk.index);
    }
    if (op.kind == OpKind::Move) text += fmt::format(" {} -> {}", name_of(op.from), name_of(op.to));
    if (op.block != kNone) text += fmt::format(" block {}", op.block);
    if (op.num_waits > 0) text += " after";
    for (uint32_t w : plan.waits_of(op)) text += fmt::format(" {}", w);
    text += '\n';
  }
  return text;
}

}  // namespace ebb
