// The sums of groups.
#include "scheduler/plan/emitter.h"

namespace ebb {

/// The sums wait in their slot until all owners of their parameter chunks have added them.
void Emitter::emit_sum_store(Store& store) {
  const ChunkId id = chunk_trace_.chunk_id(store.chunk);
  const SumSlots::Slot slot = slots_->take(id.index);
  const OpIndex is_free = slot.free_after == kNone ? kNone : added(slot.free_after);
  const bool stays = plan_.division.sums_on_devices;
  Op op = make_move(id, Tier::Device, stays ? Tier::Peer : Tier::Host);
  op.slot = slot.slot;
  if (!stays) plan_.stored_bytes += bytes_of_move(op, layout_, plan_.division);
  store.op = last_sum_store_ = emit(op, {item_op(store.after_item), is_free});
}

/// The operation after which the sums of the chunk are added.
OpIndex Emitter::added(ChunkIndex c) {
  OpIndex& op = added_[c];
  if (op == kNone) {
    op = emit_receive(Message::Added, {Space::Weights, c}, adder_of(options_.division, c));
  }
  return op;
}

/// All sums of this rank for the chunk are stored, and no later call loads its weights.
void Emitter::emit_add_groups(ChunkIndex c, OpIndex last_call) {
  slots_->add(c);
  emit_copies(UINT32_MAX);
  const ChunkRecord& chunk = plan_.chunks[c];
  const Division& division = options_.division;
  const bool fetches = chunk.is_copied && division.place.fetches(c);
  const OpIndex is_copied = fetches ? last_update_[c] : OpIndex(kNone);
  if (adder_of(division, c) != division.place.rank) {
    emit_send(Message::Sums, {Space::Weights, c}, {last_call, last_sum_store_, is_copied});
  } else if (division.chains_sums) {
    emit_chained_addition(c, last_call, is_copied);
  } else {
    emit_own_addition(c);
  }
  num_added_with_[c] = num_chained_;
  if (chunk.is_mine || chunk.update != UpdateTime::Early) return;
  is_new_[c] = true;
  last_update_[c] = kNone;
}

/// The groups of all ranks are added and rounded at once.
void Emitter::emit_own_addition(ChunkIndex c) {
  const ChunkId id{Space::Weights, c};
  const OpIndex received = emit_receive(Message::Sums, id);
  added_[c] = emit({.kind = OpKind::AddGroups,
                    .stream = StreamKind::Update,
                    .chunk = id,
                    .gradient_buffer = plan_.chunks[c].gradient_buffer},
                   {last_sum_store_, received});
  emit_send(Message::Added, id, {added_[c]});
  emit_gradient_end(c, added_[c]);
}

/// The groups of all ranks of this machine are added to the running sum of the machines before.
void Emitter::emit_chained_addition(ChunkIndex c, OpIndex last_call, OpIndex is_copied) {
  const RankPlace& place = options_.division.place;
  const ChunkId id{Space::Weights, c};
  round_totals_until(num_chained_);
  const BufferIndex slot = running_slot_of(c, place);
  OpIndex is_ready = running_slot_is_free(slot);
  in_running_slot_[slot] = c;
  const bool has_mates = place.ranks_per_machine() > 1;
  const OpIndex received = has_mates ? emit_receive(Message::Sums, id) : OpIndex(kNone);
  if (!is_first_machine(place)) {
    is_ready = emit_fetch_sum(c, previous_adder(c, place), slot, is_ready);
    emit_send(Message::SumCopied, id, {is_ready});
  }
  added_[c] =
      emit({.kind = OpKind::AddGroups, .stream = StreamKind::Update, .chunk = id, .slot = slot},
           {last_call, last_sum_store_, is_copied, received, is_ready});
  emit_send(Message::Added, id, {added_[c]});
  ++num_chained_;
  if (!plan_.chunks[c].is_mine) return;
  unrounded_.push_back({c, num_chained_ + num_machines_after(place)});
  if (is_last_machine(place)) round_totals_until(num_chained_);
}

/// The operation after which a running sum may be written to the slot.
OpIndex Emitter::running_slot_is_free(BufferIndex slot) {
  const ChunkIndex former = in_running_slot_[slot];
  if (former == kNone) return kNone;
  const RankPlace& place = options_.division.place;
  if (next_reader(former, place) == place.rank) return rounded_[former];
  const Message message = is_last_machine(place) ? Message::TotalCopied : Message::SumCopied;
  return emit_receive(message, {Space::Weights, former}, next_reader(former, place));
}

/// Copies the running sum of another machine when it is complete.
OpIndex Emitter::emit_fetch_sum(ChunkIndex c, uint32_t sender, BufferIndex slot, OpIndex is_free) {
  const ChunkId id{Space::Weights, c};
  const OpIndex is_there = emit_receive(Message::Added, id, sender);
  return emit({.kind = OpKind::FetchSum,
               .stream = StreamKind::Fetch,
               .chunk = id,
               .slot = slot,
               .sender = sender},
              {is_there, is_free});
}

/// Rounds the sum of all groups of a chunk of this rank.
void Emitter::emit_round_total(ChunkIndex c) {
  const RankPlace& place = options_.division.place;
  const ChunkId id{Space::Weights, c};
  BufferIndex slot = running_slot_of(c, place);
  OpIndex total = added_[c];
  if (!is_last_machine(place)) {
    slot = kTotalSlot;
    total = emit_fetch_sum(c, last_adder(c, place), slot, last_round_);
    emit_send(Message::TotalCopied, id, {total});
  }
  last_round_ = rounded_[c] = emit({.kind = OpKind::RoundTotal,
                                    .stream = StreamKind::Update,
                                    .chunk = id,
                                    .gradient_buffer = plan_.chunks[c].gradient_buffer,
                                    .slot = slot},
                                   {total});
  emit_gradient_end(c, last_round_);
}

/// Rounds the chunks whose turn it is when the groups of so many chunks are added.
void Emitter::round_totals_until(uint32_t num_added) {
  while (!unrounded_.empty() && unrounded_.front().num_added <= num_added) {
    const ChunkIndex c = unrounded_.front().chunk;
    unrounded_.pop_front();
    emit_round_total(c);
  }
}

/// A load of weights that are updated in this step waits for the update, also on the receive and
/// the fetch stream. Another rank may make this update only after this rank has rounded what it
/// added before. So these totals are rounded first.
void Emitter::round_totals_before_load(ChunkIndex c) {
  const RankPlace& place = options_.division.place;
  if (plan_.chunks[c].update != UpdateTime::Early || num_added_with_[c] == 0) return;
  round_totals_until(num_added_with_[c] + num_machines_after(place));
}

}  // namespace ebb
