#include "scheduler/plan/residency.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/index_format.h"
#include "device/errors.h"

namespace ebb {
namespace {

// An estimate: when so many more chunks are rounded, the gradient of a chunk is stored and its
// weights are updated. A load that waits longer would delay the loads after it on its stream.
constexpr uint32_t kRoundsLater = 4;

ItemIndex later(ItemIndex a, ItemIndex b) { return order_of(a) < order_of(b) ? b : a; }
ItemIndex earlier(ItemIndex a, ItemIndex b) { return order_of(a) < order_of(b) ? a : b; }

void name_once(std::vector<uint32_t>& chunks) {
  std::ranges::sort(chunks);
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
}

}  // namespace

void FreedBlocks::add(Freed freed) {
  freed_.insert(std::upper_bound(freed_.begin() + first_, freed_.end(), freed), freed);
}

void FreedBlocks::remove(Freed freed) {
  take(static_cast<size_t>(std::lower_bound(freed_.begin() + first_, freed_.end(), freed) -
                           freed_.begin()));
}

BlockIndex FreedBlocks::take_first() { return take(first_); }

BlockIndex FreedBlocks::take_late(uint32_t order, size_t but) {
  const Freed end{order + 1, BlockIndex(0)};
  const auto num_free = static_cast<size_t>(
      std::lower_bound(freed_.begin() + first_, freed_.end(), end) - freed_.begin());
  return take(std::max(first_ + but + 1, num_free) - but - 1);
}

BlockIndex FreedBlocks::take(size_t at) {
  const BlockIndex block = freed_[at].block;
  if (at == first_) {
    ++first_;
  } else {
    freed_.erase(freed_.begin() + static_cast<ptrdiff_t>(at));
  }
  return block;
}

Residency::Residency(const ChunkTrace& chunk_trace, uint32_t num_blocks, uint32_t num_protected,
                     std::span<const ChunkRecord> records)
    : chunk_trace_(chunk_trace),
      max_blocks_(num_blocks),
      num_protected_(num_protected),
      chunks_(chunk_trace.num_flat()),
      candidates_(static_cast<uint32_t>(chunk_trace.needs.size())) {
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    if (chunk_trace.items[i].is_round()) rounds_.push_back(i);
  }
  allocate_weights(records);
}

ItemIndex Residency::next_use(FlatIndex chunk) const {
  const uint32_t at = chunk_trace_.first_need[chunk] + chunks_[chunk].cursor;
  if (at == chunk_trace_.first_need[chunk + 1]) return kNone;
  return chunk_trace_.needs[chunk_trace_.needs_of_chunk[at]].item;
}

BlockIndex Residency::leave_block(Chunk& chunk, ItemIndex after, StoreIndex store) {
  Block& block = blocks_[chunk.block];
  block.busy = false;
  block.free_after = block.free_from = after;
  block.store = store;
  chunk.former_block = chunk.block;
  return std::exchange(chunk.block, kNone);
}

void Residency::free_block(Chunk& chunk, ItemIndex after, StoreIndex store) {
  const BlockIndex block = leave_block(chunk, after, store);
  blocks_[block].free_from = store == kNone ? after : after_rounds(after);
  freed(blocks_[block]).add({order_of(blocks_[block].free_from), block});
}

void Residency::may_leave(FlatIndex c) {
  const uint32_t at = chunk_trace_.first_need[c] + chunks_[c].cursor;
  protected_.push_back({chunk_trace_.needs_of_chunk[at], assignments.size()});
}

void Residency::end_protection() {
  candidates_.insert(protected_.front().next_need);
  protected_.pop_front();
}

/// The chunk whose next use is furthest away, among those that are not protected if there is one.
/// Returns kNone where all chunks are needed now.
FlatIndex Residency::choose_victim(ItemIndex item) {
  while (!protected_.empty() &&
         protected_.front().num_assignments + num_protected_ <= assignments.size())
    end_protection();
  for (;;) {
    while (!candidates_.empty()) {
      const NeedIndex need(candidates_.greatest());
      const auto [next, c] = chunk_trace_.needs[need];
      const bool is_old_entry = chunks_[c].block == kNone || chunks_[c].next_item != next;
      if (!is_old_entry && next == item) break;  // this item needs it, and all that are smaller
      candidates_.erase(need);
      if (!is_old_entry) return c;
    }
    if (protected_.empty()) return kNone;
    end_protection();
  }
}

/// Evicts a chunk and returns its block.
BlockIndex Residency::evict(ItemIndex item) {
  const FlatIndex c = choose_victim(item);
  if (c == kNone) {
    throw PlanError(
        fmt::format("{} blocks are not enough for item {} of the chunk trace", max_blocks_, item));
  }
  Chunk& victim = chunks_[c];
  num_evicted_residents += victim.resident && victim.cursor == 0;
  StoreIndex store = kNone;
  if (victim.dirty) {
    store = StoreIndex(stores.size());
    stores.push_back({.chunk = c, .after_item = victim.last_item});
    victim.home_store = store;
    victim.dirty = false;
    const ChunkId id = chunk_trace_.chunk_id(c);
    (id.space == Space::Activations ? stored_activations : stored_sums).push_back(id.index);
  }
  return leave_block(victim, victim.last_item, store);
}

/// A load takes the block that has been free the longest, because it starts then. A chunk that is
/// only allocated takes a block that became free shortly before it is needed, so that more loads
/// start early; a block from which a gradient is still being stored would make it wait.
BlockIndex Residency::choose_block(ItemIndex item, Touch touch) {
  if (blocks_.size() < max_blocks_) {
    blocks_.emplace_back();
    return BlockIndex(blocks_.size() - 1);
  }
  if (free_.empty() && stored_.empty()) return evict(item);
  if (touch == Touch::Create && !free_.empty()) return free_.take_late(item, num_protected_);
  const bool is_clean = stored_.empty() || (!free_.empty() && free_.first() < stored_.first());
  return (is_clean ? free_ : stored_).take_first();
}

void Residency::assign_block(FlatIndex c, ItemIndex item, Touch touch) {
  assign(c, choose_block(item, touch), item, kStart, touch != Touch::Create);
}

void Residency::assign(FlatIndex c, BlockIndex b, ItemIndex deadline, ItemIndex not_before,
                       bool copy) {
  Chunk& chunk = chunks_[c];
  Block& block = blocks_[b];
  const ItemIndex before(deadline - 1);
  ItemIndex position = before;
  if (copy) position = later(not_before, later(earlier(block.free_from, before), chunk.last_item));
  if (chunk.replaced_by != kNone)
    position = later(position, assignments[chunk.replaced_by].position);
  if (block.chunk != kNone) chunks_[block.chunk].replaced_by = AssignmentIndex(assignments.size());
  chunk.replaced_by = kNone;
  assignments.push_back({.chunk = c,
                         .deadline = deadline,
                         .position = position,
                         .block = b,
                         .copy = copy,
                         .own_store = chunk.home_store,
                         .victim = block.chunk,
                         .victim_item = block.free_after,
                         .victim_store = block.store});
  block = Block{.chunk = c, .busy = true};
  chunk.block = b;
}

void Residency::after_use(FlatIndex c, ItemIndex item) {
  Chunk& chunk = chunks_[c];
  chunk.last_item = item;
  ++chunk.cursor;
  chunk.next_item = next_use(c);
  if (chunk.stays &&
      (chunk.next_item != kNone || chunk_trace_.chunk_id(c).space == Space::Weights)) {
    return;
  }
  if (chunk.next_item != kNone) {
    if (!chunk.keeps_block) may_leave(c);
    return;
  }
  StoreIndex store = kNone;
  const Space result = chunk_trace_.stores_groups ? Space::GradientSums : Space::Gradients;
  if (chunk_trace_.chunk_id(c).space == result && !chunk.stays) {
    store = StoreIndex(stores.size());
    stores.push_back({.chunk = c, .after_item = item, .is_last = true});
  }
  free_block(chunk, item, store);
}

/// After its last use an arena chunk keeps its block until another chunk needs the block more: the
/// arena uses its addresses again and again, and each new allocation could wait.
void Residency::begin_busy(FlatIndex c, ItemIndex item, Touch touch) {
  Chunk& chunk = chunks_[c];
  chunk.next_item = kNone;  // in use: no candidate for eviction
  if (chunk.block == kNone) assign_block(c, item, touch);
}

/// A chunk that takes its block has to store its content first.
void Residency::begin_idle(FlatIndex c, ItemIndex item) {
  Chunk& chunk = chunks_[c];
  chunk.last_item = item;
  ++chunk.cursor;
  chunk.next_item = next_use(c);
  chunk.dirty = true;
  may_leave(c);
}

void Residency::end_life(FlatIndex c, ItemIndex item) {
  Chunk& chunk = chunks_[c];
  chunk.last_item = item;
  ++chunk.cursor;
  chunk.next_item = next_use(c);
  chunk.dirty = false;
  if (chunk.next_item == kNone) return free_block(chunk, item, kNone);
  may_leave(c);
}

void Residency::allocate(FlatIndex c) {
  chunks_[c].block = BlockIndex(blocks_.size());
  blocks_.push_back({.chunk = c, .busy = true});
}

void Residency::allocate_weights(std::span<const ChunkRecord> records) {
  const auto weights = [&](ChunkIndex c) { return chunk_trace_.flat_index({Space::Weights, c}); };
  for (const ChunkTraceItem& item : chunk_trace_.items) {
    if (!item.is_update()) continue;
    for (const ChunkUse& use : chunk_trace_.uses_of(item)) chunks_[use.chunk].stays = true;
    allocate(weights(item.updated_chunk));
  }
  for (const ItemIndex i : rounds_) {
    const ChunkTraceItem& item = chunk_trace_.items[i];
    const ChunkIndex rounded = item.rounded_chunk;
    if (records[rounded].keeps_sums) {
      for (const ChunkUse& use : chunk_trace_.uses_of(item)) chunks_[use.chunk].keeps_block = true;
    }
    const FlatIndex c = weights(rounded);
    if (!records[rounded].is_resident || chunks_[c].stays) continue;
    allocate(c);
    chunks_[c].resident = true;
    chunks_[c].next_item = next_use(c);
    may_leave(c);
  }
  if (!rounds_.empty()) return;
  for (ChunkIndex c{0}; c < records.size(); ++c) {
    if (!records[c].is_resident) continue;
    allocate(weights(c));
    chunks_[weights(c)].stays = true;
  }
}

void Residency::read_blocks(BlockIndex ChunkRecord::*block, std::span<ChunkRecord> records) const {
  for (ChunkRecord& record : records) record.*block = kNone;
  for (BlockIndex b{0}; b < blocks_.size(); ++b) {
    if (blocks_[b].busy) records[chunk_trace_.chunk_id(blocks_[b].chunk).index].*block = b;
  }
}

/// The item after which the chunk that `item` rounds is probably stored and updated.
ItemIndex Residency::after_rounds(ItemIndex item) const {
  const auto at = static_cast<size_t>(std::ranges::lower_bound(rounds_, item) - rounds_.begin());
  return rounds_[std::min(at + kRoundsLater, rounds_.size() - 1)];
}

/// The block in which the chunk was, if no other chunk got it: otherwise that one had to leave.
BlockIndex Residency::block_to_return_to(FlatIndex c) {
  const BlockIndex former = chunks_[c].former_block;
  const Block& block = blocks_[former];
  if (block.chunk != c) return choose_block(end(), Touch::Read);
  freed(block).remove({order_of(block.free_from), former});
  return former;
}

/// Loads resident weights again, into blocks that nothing else needs.
void Residency::return_residents() {
  for (const ItemIndex i : rounds_) {
    const FlatIndex c =
        chunk_trace_.flat_index({Space::Weights, chunk_trace_.items[i].rounded_chunk});
    if (chunks_[c].resident) assign(c, block_to_return_to(c), end(), after_rounds(i), true);
  }
}

void Residency::run() {
  for (ItemIndex i{0}; i < chunk_trace_.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace_.items[i];
    // A chunk that this item needs must not be evicted for another one: its next use is this item.
    for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::Begin)) {
      begin_busy(c, i, Touch::Create);
    }
    for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::Needed)) {
      begin_busy(c, i, Touch::Read);
    }
    for (const ChunkUse& use : chunk_trace_.uses_of(item)) {
      if (chunks_[use.chunk].block == kNone) {
        chunks_[use.chunk].next_item = i;
        assign_block(use.chunk, i, use.touch);
      }
      chunks_[use.chunk].dirty |= use.touch != Touch::Read;
    }
    for (const ChunkUse& use : chunk_trace_.uses_of(item)) after_use(use.chunk, i);
    for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::Idle)) begin_idle(c, i);
    for (const FlatIndex c : chunk_trace_.chunks_of(item, ArenaChunkEvent::End)) end_life(c, i);
  }
  return_residents();
  name_once(stored_sums);
  name_once(stored_activations);
}

}  // namespace ebb
