#include "scheduler/plan/emitter.h"

#include <algorithm>
#include <numeric>

namespace ebb {

uint32_t Emitter::emit(Op op, std::initializer_list<uint32_t> waits) {
  op.first_wait = static_cast<uint32_t>(plan_.waits.size());
  for (uint32_t w : waits) {
    if (w != kNone) plan_.waits.push_back(w);
  }
  op.num_waits = static_cast<uint32_t>(plan_.waits.size()) - op.first_wait;
  plan_.ops.push_back(op);
  return static_cast<uint32_t>(plan_.ops.size() - 1);
}

/// A store comes behind the last use.
void Emitter::emit_drop(Lane lane, uint32_t chunk, uint32_t block, uint32_t last_item,
                        uint32_t store) {
  last_drop_[chunk] =
      emit({.kind = OpKind::Drop, .lane = lane, .chunk = program_.chunk_id(chunk), .block = block},
           {store != kNone ? store_op(store) : item_op(last_item)});
}

void Emitter::emit_bring(const Bring& bring) {
  const Lane lane = bring.copy ? Lane::Load : Lane::Compute;
  if (bring.victim != kNone) {
    emit_drop(lane, bring.victim, bring.block, bring.victim_item, bring.victim_store);
  }
  const ChunkId id = program_.chunk_id(bring.chunk);
  const uint32_t left = last_drop_[bring.chunk];
  const bool left_there = left != kNone && plan_.ops[left].lane != lane;
  const uint32_t index =
      emit({.kind = OpKind::Move,
            .lane = lane,
            .from = bring.copy ? Tier::Host : Tier::None,
            .to = Tier::Device,
            .chunk = id,
            .block = bring.block},
           {store_op(bring.own_store), update_before(id), left_there ? left : kNone});
  if (!bring.copy) return;
  pending_load_[bring.chunk] = index;
  plan_.loaded_bytes += layout_.used_bytes(id);
}

void Emitter::emit_brings_after(uint32_t position) {
  for (; next_bring_ < first_bring_after_[order_of(position)]; ++next_bring_) {
    emit_bring(residency_.brings[bring_order_[next_bring_]]);
  }
}

void Emitter::emit_item(uint32_t i) {
  const ProgramItem& item = program_.items[i];
  Op op{.kind = OpKind::Run, .moment = item.moment};
  if (item.is_finish()) {
    op = Op{.kind = OpKind::Finish, .chunk = {Space::Weights, item.finished_chunk}};
  } else if (item.is_update()) {
    if (options_.update_after_norm) emit_norm();
    op = Op{.kind = OpKind::Update, .chunk = {Space::Weights, item.updated_chunk}};
  }
  const uint32_t index = emit(op, {item.is_update() ? norm_ : kNone});
  const auto wait_for = [&](uint32_t chunk) {
    if (pending_load_[chunk] == kNone) return;
    plan_.waits.push_back(std::exchange(pending_load_[chunk], kNone));
    ++plan_.ops[index].num_waits;
  };
  for (uint32_t c : program_.chunks_of(item, ArenaChunkEvent::Begin)) wait_for(c);
  for (uint32_t c : program_.chunks_of(item, ArenaChunkEvent::Wake)) wait_for(c);
  for (const ChunkUse& use : program_.uses_of(item)) wait_for(use.chunk);
  op_of_item_[i] = index;
  const bool stays = item.is_finish() && slot_of_chunk_[item.finished_chunk] == kNone;
  if (stays) emit_partials(item.finished_chunk, index);
}

/// Of a gradient that stays on the device.
void Emitter::emit_partials(uint32_t c, uint32_t finish) {
  last_gradient_store_ =
      emit({.kind = OpKind::Partials, .lane = Lane::Store, .chunk = {Space::Weights, c}}, {finish});
}

void Emitter::emit_update(uint32_t c, uint32_t wait) {
  const uint32_t slot = slot_of_chunk_[c];
  last_update_[c] = last_update_of_slot_[slot] = emit({.kind = OpKind::Update,
                                                       .lane = Lane::Update,
                                                       .chunk = {Space::Weights, c},
                                                       .home_slot = slot},
                                                      {wait});
}

void Emitter::emit_carried_updates() {
  for (const CarriedUpdate& left : plan_.carried) {
    const Op update{.kind = OpKind::Update,
                    .lane = Lane::Update,
                    .chunk = {Space::Weights, left.chunk},
                    .home_slot = left.gradient_slot,
                    .carried = true};
    last_update_[left.chunk] = last_update_of_slot_[left.gradient_slot] = emit(update, {});
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
  const bool now = !options_.update_after_norm && last_update_[c] == kNone;
  if (++parts_stored_[c] < num_parts) return;
  if (now) emit_update(c, store.op);
  if (std::ranges::binary_search(plan_.speculated, c)) {
    emit({.kind = OpKind::Speculate,
          .lane = Lane::Update,
          .chunk = {Space::Weights, c},
          .home_slot = op.home_slot},
         {store.op});
  }
}

void Emitter::emit_stores_after(uint32_t item) {
  while (next_store_ < store_order_.size() &&
         residency_.stores[store_order_[next_store_]].after_item == item) {
    emit_store(residency_.stores[store_order_[next_store_++]]);
  }
}

void Emitter::emit_norm() {
  if (norm_ != kNone) return;
  norm_ = emit({.kind = OpKind::Norm, .lane = Lane::Update}, {last_gradient_store_});
}

void Emitter::emit_end() {
  if (options_.update) {
    emit_norm();
    if (options_.update_after_norm && !options_.carry_updates) {
      std::sort(finished_.begin(), finished_.end());
      for (uint32_t c : finished_) emit_update(c, norm_);
    }
  }
  for (uint32_t b = 0; b < residency_.blocks().size(); ++b) {
    const Residency::Block& block = residency_.blocks()[b];
    if (block.chunk != kNone && !block.busy)
      emit_drop(Lane::Load, block.chunk, b, block.free_after, block.store);
  }
}

/// By position, and of one position by deadline.
void Emitter::order_brings() {
  const std::vector<Bring>& brings = residency_.brings;
  first_bring_after_.assign(program_.items.size() + 2, 0);
  for (const Bring& bring : brings) ++first_bring_after_[order_of(bring.position) + 1];
  std::partial_sum(first_bring_after_.begin(), first_bring_after_.end(),
                   first_bring_after_.begin());
  bring_order_.resize(brings.size());
  for (uint32_t b = 0; b < brings.size(); ++b) {
    bring_order_[first_bring_after_[order_of(brings[b].position)]++] = b;
  }
  const auto deadline = [&](uint32_t b) { return brings[b].deadline; };
  auto begin = bring_order_.begin();
  for (const uint32_t after : first_bring_after_) {
    const auto end = bring_order_.begin() + after;
    if (!std::ranges::is_sorted(begin, end, {}, deadline)) {
      std::ranges::stable_sort(begin, end, {}, deadline);
    }
    begin = end;
  }
}

void Emitter::run() {
  order_brings();
  store_order_.resize(residency_.stores.size());
  for (uint32_t s = 0; s < store_order_.size(); ++s) store_order_[s] = s;
  std::stable_sort(store_order_.begin(), store_order_.end(), [&](uint32_t a, uint32_t b) {
    return residency_.stores[a].after_item < residency_.stores[b].after_item;
  });
  op_of_item_.assign(program_.items.size(), kNone);
  pending_load_.assign(program_.num_dense(), kNone);
  last_drop_.assign(program_.num_dense(), kNone);
  parts_stored_.assign(layout_.num_chunks(), 0);
  last_update_.assign(layout_.num_chunks(), kNone);
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

}  // namespace ebb
