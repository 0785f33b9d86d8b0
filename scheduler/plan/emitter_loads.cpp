// How chunks get their blocks, and weights their content.
#include <algorithm>
#include <numeric>

#include "scheduler/plan/emitter.h"
#include "scheduler/plan/split_loads.h"

namespace ebb {

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
  Op move = make_move(id, Tier::None, Tier::Device, assignment.block);
  OpIndex source = kNone;
  if (is_split(assignment)) {
    move = make_move(id, Tier::Peer, Tier::Device, assignment.block);
    move.split = next_gather_++;
    emit_parts(move.split + 1 + kPartsAhead);
    source = emit_split_receive(Message::PartLoaded, move.split);
  } else if (assignment.copy) {
    move = make_move(id, source_of(id, plan_), Tier::Device, assignment.block);
    source = emit_source(move);
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
  if (move.slot != kNone) last_load_of_slot_[move.slot] = index;
  pending_load_[assignment.chunk] = index;
  plan_.loaded_bytes += layout_.used_bytes(id);
  if (is_gather(move)) plan_.gathered_bytes += layout_.used_bytes(id);
  const bool is_awaited = move.split != kNone && move.split + kPartSlots < split_loads_.size();
  if (is_awaited) emit_split_send(Message::Gathered, id, move.split, index);
}

/// Returns what a load, or the load of a part, waits for so that the content of its source is
/// there. If this is a fetch, it goes to the slot whose last fetch is longest ago.
OpIndex Emitter::emit_source(Op& load) {
  const OpIndex updated = weights_before(load.chunk);
  if (!needs_slot(load.chunk)) return updated;
  Op fetch = make_fetch(load.chunk, plan_.chunks[load.chunk.index].owner);
  fetch.slot = load.slot = next_slot_;
  fetch.split = load.split;
  plan_.fetched_bytes += bytes_of_move(fetch, layout_, plan_.division);
  next_slot_ = BufferIndex((next_slot_ + 1) % kFetchSlots);
  return emit(fetch, {updated, last_load_of_slot_[fetch.slot]});
}

bool Emitter::is_split(const Assignment& assignment) const {
  return assignment.copy && are_loads_split(chunk_trace_.chunk_id(assignment.chunk), options_);
}

void Emitter::find_split_loads() {
  for (const AssignmentIndex i : assignment_order_) {
    if (is_split(residency_.assignments[i])) split_loads_.push_back(i);
  }
}

/// The loads of parts of the split loads before `end` that are not in the plan yet. The part of a
/// resident chunk that returns comes directly before the gather, because before that its update may
/// not be in the plan.
void Emitter::emit_parts(uint32_t end) {
  for (; next_part_ < std::min<size_t>(end, split_loads_.size()); ++next_part_) {
    const Assignment& assignment = residency_.assignments[split_loads_[next_part_]];
    const bool returns = assignment.deadline == chunk_trace_.items.size();
    if (returns && next_part_ >= next_gather_) return;
    emit_part(chunk_trace_.chunk_id(assignment.chunk), next_part_);
  }
}

void Emitter::emit_part(ChunkId id, uint32_t number) {
  const bool is_reused = number >= kPartSlots;
  const OpIndex is_free =
      is_reused ? emit_split_receive(Message::Gathered, number - kPartSlots) : OpIndex(kNone);
  Op part = make_move(id, source_of(id, plan_), Tier::Peer);
  part.split = number;
  const OpIndex source = emit_source(part);
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

void Emitter::emit_assignments_after(ItemIndex position) {
  for (; next_assignment_ < first_assignment_after_[order_of(position)]; ++next_assignment_) {
    emit_assignment(residency_.assignments[assignment_order_[next_assignment_]]);
  }
}

/// What a load of the chunk, or its fetch, must wait for so that its source has the present
/// weights, or kNone: an update of this rank, a message, or the fetch to the copy of this machine.
OpIndex Emitter::weights_before(ChunkId id) {
  if (id.space != Space::Weights) return kNone;
  emit_copies(id.index / options_.division.place.num_ranks + 1);
  const ChunkRecord& chunk = plan_.chunks[id.index];
  if (chunk.is_delayed() && !chunk.is_copied) return kNone;
  round_totals_before_load(ChunkIndex(id.index));
  OpIndex& update = last_update_[id.index];
  if (chunk.is_mine || update != kNone) return update;
  const bool is_new = is_new_[id.index];
  const bool is_for_part = are_loads_split(id, options_) && !needs_slot(id);
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

/// The fetches of this rank for its machine of the rows (sends.h) before `end_row` that are not in
/// the plan yet. They come with the first loads of their row, whose chunks are updated at the same
/// time: before that, they would hold back the messages about earlier chunks. In a row a rank
/// fetches one chunk of each other machine, first of the machine before its own, then of the one
/// before that. So as long as machines are equally fast, each of them is asked by one other at a
/// time.
void Emitter::emit_copies(uint32_t end_row) {
  const RankPlace& place = options_.division.place;
  if (place.num_machines == 1) return;
  const uint32_t num_machines = place.num_machines, of_machine = place.ranks_per_machine();
  const auto num_rows =
      static_cast<uint32_t>((plan_.chunks.size() + place.num_ranks - 1) / place.num_ranks);
  for (; next_row_ < std::min(end_row, num_rows); ++next_row_) {
    for (uint32_t distance = 1; distance < num_machines; ++distance) {
      const uint32_t from = (place.machine_of(place.rank) + num_machines - distance) % num_machines;
      const ChunkIndex chunk(next_row_ * place.num_ranks + from * of_machine +
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

}  // namespace ebb
