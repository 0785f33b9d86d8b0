#include "scheduler/plan/emitter.h"

#include <algorithm>
#include <utility>

namespace ebb {

OpIndex Emitter::emit(Op op, std::initializer_list<OpIndex> waits) {
  op.first_wait = static_cast<uint32_t>(plan_.waits.size());
  for (const OpIndex w : waits) {
    if (w != kNone) plan_.waits.push_back(w);
  }
  op.num_waits = static_cast<uint32_t>(plan_.waits.size()) - op.first_wait;
  plan_.ops.push_back(op);
  return OpIndex(plan_.ops.size() - 1);
}

OpIndex Emitter::emit_send(Message message, ChunkId chunk, std::initializer_list<OpIndex> waits,
                           bool deferred) {
  if (options_.division.place.num_ranks == 1) return kNone;
  return emit({.kind = OpKind::Send,
               .stream = stream_of_send(message),
               .chunk = chunk,
               .message = message,
               .deferred = deferred},
              waits);
}

OpIndex Emitter::emit_receive(Message message, ChunkId chunk, uint32_t sender, bool deferred,
                              StreamKind stream) {
  if (options_.division.place.num_ranks == 1) return kNone;
  return emit({.kind = OpKind::Receive,
               .stream = stream,
               .chunk = chunk,
               .message = message,
               .sender = sender,
               .deferred = deferred},
              {});
}

void Emitter::emit_item(ItemIndex i) {
  const ChunkTraceItem& item = chunk_trace_.items[i];
  if (item.is_round() && chunk_trace_.stores_groups) {
    op_of_item_[i] = op_of_item_[i - 1];
    return emit_add_groups(item.rounded_chunk, op_of_item_[i]);
  }
  Op op{.kind = OpKind::Call, .call = item.call};
  if (item.is_round()) {
    op = Op{.kind = OpKind::Round, .chunk = {Space::Weights, item.rounded_chunk}};
  } else if (item.is_update()) {
    if (options_.update_after_norm) emit_norm();
    op = Op{.kind = OpKind::Update, .chunk = {Space::Weights, item.updated_chunk}};
  }
  const OpIndex index = emit(op, {item.is_update() ? norm_ : kNone});
  const auto wait_for = [&](FlatIndex chunk) {
    if (pending_load_[chunk] == kNone) return;
    plan_.waits.push_back(std::exchange(pending_load_[chunk], kNone));
    ++plan_.ops[index].num_waits;
  };
  for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::Begin)) wait_for(c);
  for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::Needed)) wait_for(c);
  for (const ChunkUse& use : chunk_trace_.uses_of(item)) wait_for(use.chunk);
  op_of_item_[i] = index;
  const bool stays = item.is_round() && plan_.chunks[item.rounded_chunk].is_on_device();
  if (stays) emit_store_partial_norms(item.rounded_chunk, index);
}

/// For a gradient that stays on the device.
void Emitter::emit_store_partial_norms(ChunkIndex c, OpIndex finish) {
  last_gradient_store_ = emit({.kind = OpKind::StorePartialNorms,
                               .stream = StreamKind::Store,
                               .chunk = {Space::Weights, c}},
                              {finish});
}

void Emitter::emit_update(ChunkIndex c, OpIndex wait, bool deferred) {
  const BufferIndex buffer = plan_.chunks[c].gradient_buffer;
  last_update_[c] = emit({.kind = OpKind::Update,
                          .stream = StreamKind::Update,
                          .chunk = {Space::Weights, c},
                          .gradient_buffer = buffer,
                          .deferred = deferred},
                         {wait});
  if (buffer != kNone) last_update_of_buffer_[buffer] = last_update_[c];
  if (plan_.chunks[c].is_delayed()) return;  // no rank waits for it
  emit_send(Message::Weights, {Space::Weights, c}, {last_update_[c]}, deferred);
}

/// Those that the step before left. Deferred ones come in the order in which the forward needs
/// their weights, delayed ones in the order in which gradients need their buffers.
void Emitter::emit_first_updates() {
  const std::vector<ChunkIndex> order = options_.delayed_updates
                                            ? round_order(chunk_trace_)
                                            : plan_.chunks_that(&ChunkRecord::defers_update);
  for (const ChunkIndex c : order) {
    if (plan_.chunks[c].defers_update()) emit_update(c, kNone, true);
  }
}

/// What follows when the gradient of a chunk of this rank is finished.
void Emitter::emit_gradient_end(ChunkIndex c, OpIndex rounded) {
  last_gradient_store_ = rounded;
  const ChunkRecord& chunk = plan_.chunks[c];
  if (chunk.update == UpdateTime::Early) emit_update(c, rounded);
  if (chunk.is_speculative()) {
    emit({.kind = OpKind::Speculate,
          .stream = StreamKind::Update,
          .chunk = {Space::Weights, c},
          .gradient_buffer = chunk.gradient_buffer},
         {rounded});
  }
}

void Emitter::emit_store(Store& store) {
  const ChunkId id = chunk_trace_.chunk_id(store.chunk);
  Op op = make_move(id, Tier::Device, Tier::Host);
  if (store.is_last && id.space == Space::GradientSums) return emit_sum_store(store);
  plan_.stored_bytes += layout_.used_bytes(id);
  if (id.space != Space::Gradients) {
    store.op = emit(op, {item_op(store.after_item)});
    return;
  }
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  const ChunkIndex c(id.index / parts);
  const ChunkRecord& chunk = plan_.chunks[c];
  op.gradient_buffer = chunk.gradient_buffer;
  store.op = emit(op, {item_op(store.after_item), last_update_of_buffer_[op.gradient_buffer]});
  last_gradient_store_ = store.op;
  const uint32_t num_parts =
      std::min<uint32_t>(parts, layout_.num_chunks(Space::Gradients) - c * parts);
  if (++parts_stored_[c] < num_parts) return;
  emit_gradient_end(c, store.op);
}

void Emitter::emit_stores_after(ItemIndex item) {
  while (next_store_ < store_order_.size() &&
         residency_.stores[store_order_[next_store_]].after_item == item) {
    emit_store(residency_.stores[store_order_[next_store_++]]);
  }
}

void Emitter::emit_norm() {
  if (norm_ != kNone) return;
  round_totals_until(UINT32_MAX);
  emit_send(Message::Norms, {}, {last_gradient_store_});
  const OpIndex received = emit_receive(Message::Norms, {});
  norm_ =
      emit({.kind = OpKind::Norm, .stream = StreamKind::Update}, {received, last_gradient_store_});
}

void Emitter::emit_end() {
  if (options_.update) {
    emit_norm();
    for (ChunkIndex c{0}; c < plan_.chunks.size(); ++c) {
      const ChunkRecord& chunk = plan_.chunks[c];
      const bool is_left =
          chunk.update == UpdateTime::AfterNorm && chunk.is_updated_by_update_thread();
      if (is_left) emit_update(c, norm_);
    }
  }
  for (BlockIndex b{0}; b < residency_.blocks().size(); ++b) {
    const Residency::Block& block = residency_.blocks()[b];
    if (block.chunk != kNone && !block.busy)
      emit_drop(StreamKind::Load, block.chunk, b, block.free_after, block.store);
  }
}

void Emitter::run() {
  order_assignments();
  find_split_loads();
  store_order_.resize(residency_.stores.size());
  for (StoreIndex s{0}; s < store_order_.size(); ++s) store_order_[s] = s;
  std::stable_sort(store_order_.begin(), store_order_.end(), [&](StoreIndex a, StoreIndex b) {
    return residency_.stores[a].after_item < residency_.stores[b].after_item;
  });
  op_of_item_.assign(chunk_trace_.items.size(), kNone);
  pending_load_.assign(chunk_trace_.num_flat(), kNone);
  last_drop_.assign(chunk_trace_.num_flat(), kNone);
  parts_stored_.assign(layout_.num_chunks(), 0);
  last_update_.assign(layout_.num_chunks(), kNone);
  last_update_of_buffer_.assign(std::max(plan_.gradient_buffers, layout_.num_chunks()), kNone);
  if (chunk_trace_.stores_groups) {
    slots_.emplace(layout_, chunk_trace_.trained, num_adders(options_.division));
  }
  is_new_.assign(layout_.num_chunks(), false);
  added_.assign(layout_.num_chunks(), kNone);
  rounded_.assign(layout_.num_chunks(), kNone);
  num_added_with_.assign(layout_.num_chunks(), 0);
  last_load_of_slot_.assign(kFetchSlots, kNone);

  emit_first_updates();
  emit_assignments_after(kStart);
  for (ItemIndex i{0}; i < chunk_trace_.items.size(); ++i) {
    emit_item(i);
    emit_stores_after(i);
    emit_assignments_after(i);
  }
  emit_end();
  if (slots_) plan_.sum_slots = slots_->num_slots();
  if (options_.division.place.num_machines > 1) plan_.fetch_slots = kFetchSlots;
  if (options_.update && options_.division.chains_sums) plan_.running_slots = kRunningSlots;
}

}  // namespace ebb
