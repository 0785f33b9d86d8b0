#include "scheduler/plan/emitter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/plan/split_loads.h"

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

/// Waits for the last use of the chunk, or for the store after it.
void Emitter::emit_drop(StreamKind stream, FlatIndex chunk, BlockIndex block, ItemIndex last_item,
                        StoreIndex store) {
  last_drop_[chunk] = emit({.kind = OpKind::Drop,
                            .stream = stream,
                            .chunk = chunk_trace_.chunk_id(chunk),
                            .block = block},
                           {store != kNone ? store_op(store) : item_op(last_item)});
}

void Emitter::emit_assignment(const Assignment& assignment) {
  const ChunkId id = chunk_trace_.chunk_id(assignment.chunk);
  const bool splits = is_split(assignment);
  if (splits) emit_parts(num_gathers_ + 1 + kPartsAhead);
  OpIndex source = kNone;
  if (assignment.copy) {
    source = splits ? emit_split_receive(Message::PartLoaded, num_gathers_) : weights_before(id);
  }
  Op move = make_move(id, assignment.copy ? source_of(id, plan_) : Tier::None, Tier::Device,
                      assignment.block);
  if (splits) {
    move.from = Tier::Peer;
    move.split = num_gathers_++;
  }
  const bool is_fetched = assignment.copy && !splits && needs_slot(id);
  if (is_fetched) {
    source = emit_fetch(id, source);
    move.slot = plan_.ops[source].slot;
  }
  if (assignment.victim != kNone) {
    emit_drop(move.stream, assignment.victim, assignment.block, assignment.victim_item,
              assignment.victim_store);
  }
  const OpIndex left = last_drop_[assignment.chunk];
  const bool left_there = left != kNone && plan_.ops[left].stream != move.stream;
  const OpIndex index =
      emit(move, {store_op(assignment.own_store), source, left_there ? left : kNone});
  if (!assignment.copy) return;
  if (is_fetched) last_load_of_slot_[move.slot] = index;
  pending_load_[assignment.chunk] = index;
  plan_.loaded_bytes += layout_.used_bytes(id);
  if (is_gather(move)) plan_.gathered_bytes += layout_.used_bytes(id);
  const bool is_awaited = splits && move.split + kPartSlots < split_loads_.size();
  if (is_awaited) emit_split_send(Message::Gathered, id, move.split, index);
}

bool Emitter::is_split(const Assignment& assignment) const {
  return options_.update && options_.division.splits_loads && assignment.copy &&
         chunk_trace_.chunk_id(assignment.chunk).space == Space::Weights;
}

void Emitter::find_split_loads() {
  for (const AssignmentIndex i : assignment_order_) {
    if (is_split(residency_.assignments[i])) split_loads_.push_back(i);
  }
}

/// The loads of parts of the split loads before `end`, unless they are in the plan. The part of a
/// resident chunk that returns comes directly before the gather, because before that its update may
/// not be in the plan.
void Emitter::emit_parts(uint32_t end) {
  for (; num_parts_ < std::min<size_t>(end, split_loads_.size()); ++num_parts_) {
    const Assignment& assignment = residency_.assignments[split_loads_[num_parts_]];
    const bool returns = assignment.deadline == chunk_trace_.items.size();
    if (returns && num_parts_ > num_gathers_) return;
    emit_part(chunk_trace_.chunk_id(assignment.chunk), num_parts_);
  }
}

void Emitter::emit_part(ChunkId id, uint32_t number) {
  const bool is_reused = number >= kPartSlots;
  const OpIndex is_free =
      is_reused ? emit_split_receive(Message::Gathered, number - kPartSlots) : OpIndex(kNone);
  OpIndex source = weights_before(id);
  Op part = make_move(id, source_of(id, plan_), Tier::Peer);
  part.split = number;
  if (needs_slot(id)) {
    source = emit_fetch(id, source, number);
    part.slot = plan_.ops[source].slot;
  }
  const OpIndex index = emit(part, {source, is_free});
  if (part.slot != kNone) last_load_of_slot_[part.slot] = index;
  if (part.from == Tier::Host) {
    plan_.part_bytes += bytes_of_move(part, layout_, plan_.division);
  }
  emit_split_send(Message::PartLoaded, id, number, index);
}

OpIndex Emitter::emit_split_send(Message message, ChunkId chunk, uint32_t number, OpIndex wait) {
  return emit({.kind = OpKind::Send,
               .stream = stream_of_send(message),
               .chunk = chunk,
               .split = number,
               .message = message},
              {wait});
}

OpIndex Emitter::emit_split_receive(Message message, uint32_t number) {
  const FlatIndex chunk = residency_.assignments[split_loads_[number]].chunk;
  return emit({.kind = OpKind::Receive,
               .stream = StreamKind::Parts,
               .chunk = chunk_trace_.chunk_id(chunk),
               .split = number,
               .message = message},
              {});
}

/// Does a load of the chunk need a fetch of its own? The copy of a machine has the weights with
/// which the step begins.
bool Emitter::needs_slot(ChunkId id) const {
  if (id.space != Space::Weights || plan_.chunks[id.index].is_near) return false;
  return !plan_.chunks[id.index].is_copied || is_new_[id.index];
}

/// Fetches weights from the machine of their owner to the slot whose last fetch is longest ago.
OpIndex Emitter::emit_fetch(ChunkId id, OpIndex updated, uint32_t split) {
  Op op = make_fetch(id, plan_.chunks[id.index].owner);
  op.slot = next_slot_;
  op.split = split;
  plan_.fetched_bytes += bytes_of_move(op, layout_, plan_.division);
  next_slot_ = BufferIndex((next_slot_ + 1) % kFetchSlots);
  return emit(op, {updated, last_load_of_slot_[op.slot]});
}

void Emitter::emit_assignments_after(ItemIndex position) {
  for (; next_assignment_ < first_assignment_after_[order_of(position)]; ++next_assignment_) {
    emit_assignment(residency_.assignments[assignment_order_[next_assignment_]]);
  }
}

/// A chunk of another rank is loaded when its owner has updated it, or when it is in the copy of
/// this machine.
OpIndex Emitter::weights_before(ChunkId id) {
  if (id.space != Space::Weights) return kNone;
  emit_copies(id.index / options_.division.place.num_ranks + 1);
  const ChunkRecord& chunk = plan_.chunks[id.index];
  if (chunk.is_delayed() && !chunk.is_copied) return kNone;
  round_totals_before_load(ChunkIndex(id.index));
  OpIndex& update = last_update_[id.index];
  if (chunk.is_mine || update != kNone) return update;
  const bool is_new = is_new_[id.index];
  const bool is_for_part = options_.update && options_.division.splits_loads && !needs_slot(id);
  const StreamKind stream = is_for_part ? StreamKind::Parts : StreamKind::Receive;
  if (chunk.is_copied && !is_new) {
    const uint32_t fetcher = options_.division.place.fetcher_of(ChunkIndex(id.index));
    return update = emit_receive(Message::Copied, id, fetcher, false, stream);
  }
  // This rank has loaded resident weights after their update in the step before.
  const bool is_known = chunk.begins_on_device() && !is_new;
  if (!chunk.is_trained() || !options_.update || is_known) return kNone;
  return update = emit_receive(Message::Weights, id, chunk.owner, !is_new, stream);
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

/// The fetches of this rank for its machine of the chunks before those of round `end`, unless they
/// are in the plan. They come with the first loads of their round (sends.h), whose chunks are
/// updated at the same time: before that, they would hold back the messages about earlier chunks.
/// In a round a rank fetches one chunk of each other machine, first of the machine before its own,
/// then of the one before that. So at any time each machine is asked by one other.
void Emitter::emit_copies(uint32_t end) {
  const RankPlace& place = options_.division.place;
  const uint32_t num_machines = place.num_machines, of_machine = place.ranks_per_machine();
  for (; next_round_ < end; ++next_round_) {
    for (uint32_t distance = 1; distance < num_machines; ++distance) {
      const uint32_t from = (place.machine_of(place.rank) + num_machines - distance) % num_machines;
      const ChunkIndex chunk(next_round_ * place.num_ranks + from * of_machine +
                             place.rank % of_machine);
      if (chunk < plan_.chunks.size() && plan_.chunks[chunk].is_copied) emit_copy(chunk);
    }
  }
}

void Emitter::emit_copy(ChunkIndex c) {
  const ChunkRecord& chunk = plan_.chunks[c];
  const ChunkId id{Space::Weights, c};
  // This rank has loaded resident weights again after their update.
  const bool waits = chunk.is_trained() && !chunk.is_delayed() && !chunk.begins_on_device();
  const OpIndex is_updated =
      waits ? emit_receive(Message::Weights, id, chunk.owner, true) : OpIndex(kNone);
  last_update_[c] = emit(make_fetch(id, chunk.owner), {is_updated});
  plan_.fetched_bytes += layout_.used_bytes(id);
  const bool is_awaited = options_.division.place.ranks_per_machine() > 1;
  if (is_awaited) emit_send(Message::Copied, id, {last_update_[c]});
}

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
  emit_copies(ChunkIndex(plan_.chunks.size()));
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

/// Sorts assignments by position, then by deadline.
void Emitter::order_assignments() {
  const std::vector<Assignment>& assignments = residency_.assignments;
  first_assignment_after_.assign(chunk_trace_.items.size() + 2, 0);
  for (const Assignment& assignment : assignments)
    ++first_assignment_after_[order_of(assignment.position) + 1];
  std::partial_sum(first_assignment_after_.begin(), first_assignment_after_.end(),
                   first_assignment_after_.begin());
  assignment_order_.resize(assignments.size());
  for (AssignmentIndex b{0}; b < assignments.size(); ++b) {
    assignment_order_[first_assignment_after_[order_of(assignments[b].position)]++] = b;
  }
  const auto deadline = [&](AssignmentIndex b) { return assignments[b].deadline; };
  auto begin = assignment_order_.begin();
  for (const uint32_t after : first_assignment_after_) {
    const auto end = assignment_order_.begin() + after;
    if (!std::ranges::is_sorted(begin, end, {}, deadline)) {
      std::ranges::stable_sort(begin, end, {}, deadline);
    }
    begin = end;
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
