// The first half of the planner: it decides which chunk is in which block at which item. The
// emitter (emitter.h) makes operations of the decisions. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/index_set.h"
#include "scheduler/plan/plan.h"

namespace ebb {

using StoreIndex = Index<struct StoreTag>;            ///< in Residency::stores
using AssignmentIndex = Index<struct AssignmentTag>;  ///< in Residency::assignments

/// A position is an item after which something may happen; kStart is before item 0.
constexpr ItemIndex kStart = kNone;
/// Maps positions to numbers that can be compared; kStart becomes 0.
constexpr uint32_t order_of(ItemIndex position) { return position == kStart ? 0 : position + 1; }

/// A chunk is stored to the host, after the item that used it last.
struct Store {
  FlatIndex chunk;
  ItemIndex after_item;
  OpIndex op = kNone;  // the operation that stores it; the Emitter sets it
};

/// A chunk gets a block. With `copy` it is loaded from host memory, otherwise only allocated.
struct Assignment {
  FlatIndex chunk;
  ItemIndex deadline;  // the item that needs it
  ItemIndex position;  // the item after which the chunk gets the block
  BlockIndex block;
  bool copy;
  StoreIndex own_store;     // that copied its content to the host, or kNone
  FlatIndex victim;         // the chunk that had the block, or kNone
  ItemIndex victim_item;    // the item that used the victim last
  StoreIndex victim_store;  // or kNone
};

/// Free blocks, by the time from which they are free, then by number.
class FreedBlocks {
 public:
  struct Freed {
    uint32_t order;  // order_of(position)
    BlockIndex block;
    auto operator<=>(const Freed&) const = default;
  };
  bool empty() const { return first_ == freed_.size(); }
  void add(Freed freed);
  void remove(Freed freed);
  /// REQUIRES: not empty, for all three.
  Freed first() const { return freed_[first_]; }
  BlockIndex take_first();
  /// Takes one of the blocks that are free at `order`: not the `but` blocks that became free last,
  /// but the one before them. If there are too few, takes the first block.
  BlockIndex take_late(uint32_t order, size_t but);

 private:
  BlockIndex take(size_t at);

  std::vector<Freed> freed_;  // ascending
  size_t first_ = 0;
};

/// Evicts the chunk whose next use is furthest away (Belady). Chunks that were used just now are
/// protected: their block is free only after their last user, and after a store if they change.
///
/// Resident weights are on the device when the step begins. When their chunk is rounded and its
/// update had time to run, they are loaded again, into blocks that nothing else needs, and stay.
/// These loads are the last ones of a step. Chunks that the device updates keep their blocks all
/// the time, and the blocks of their gradients until the update; in a plan
/// without updates, resident weights do so too.
class Residency {
 public:
  /// A chunk is protected until `num_protected` others got blocks; 0: no protection. REQUIRES:
  /// there are enough blocks for every item in addition to those of resident chunks and device
  /// updates.
  Residency(const ChunkTrace& chunk_trace, uint32_t num_blocks, uint32_t num_protected,
            std::span<const ChunkRecord> records);
  void run();

  std::vector<Assignment> assignments;
  std::vector<Store> stores;
  uint32_t num_blocks_used() const { return static_cast<uint32_t>(blocks_.size()); }
  std::vector<uint32_t> stored_sums;         ///< chunks of sums that leave between uses, ascending
  std::vector<uint32_t> stored_activations;  ///< arena chunks that leave while idle, ascending
  uint32_t num_evicted_residents = 0;  ///< resident chunks that were evicted before their first use

  struct Block {
    FlatIndex chunk = kNone;
    ItemIndex free_after = kStart;
    ItemIndex free_from = kStart;  // an estimate: by then `store` is done
    StoreIndex store = kNone;
    bool busy = false;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Stores the blocks of the resident chunks in `records`: before run() the blocks at the start,
  /// afterwards those at the end.
  void read_blocks(BlockIndex ChunkRecord::*block, std::span<ChunkRecord> records) const;

 private:
  struct Chunk {
    BlockIndex block = kNone;
    BlockIndex former_block = kNone;
    ItemIndex last_item = kStart;
    ItemIndex next_item = kNone;
    uint32_t cursor = 0;  // in its list of needs
    StoreIndex home_store = kNone;
    AssignmentIndex replaced_by = kNone;  // the assignment that took its block
    bool dirty = false;            // host memory does not have its content
    bool resident = false;         // weights that leave for their update and come back
    bool stays = false;  // it keeps its block: weights to the end, others to the last use
  };

  ItemIndex next_use(FlatIndex chunk) const;
  BlockIndex choose_block(ItemIndex item, Touch touch);
  /// Protects the chunk for a while. Then it is a candidate for eviction.
  void may_leave(FlatIndex chunk);
  void end_protection();
  FlatIndex choose_victim(ItemIndex item);
  BlockIndex evict(ItemIndex item);
  // An arena chunk is needed, becomes idle, or has no live activation any more.
  void begin_busy(FlatIndex chunk, ItemIndex item, Touch touch);
  void begin_idle(FlatIndex chunk, ItemIndex item);
  void end_life(FlatIndex chunk, ItemIndex item);
  void assign_block(FlatIndex chunk, ItemIndex item, Touch touch);
  void assign(FlatIndex chunk, BlockIndex block, ItemIndex deadline, ItemIndex not_before,
              bool copy);
  void allocate(FlatIndex chunk);
  void allocate_weights(std::span<const ChunkRecord> records);
  FreedBlocks& freed(const Block& block) { return block.store == kNone ? free_ : stored_; }
  ItemIndex after_rounds(ItemIndex item) const;
  ItemIndex end() const { return ItemIndex(chunk_trace_.items.size()); }
  void return_residents();
  BlockIndex block_to_return_to(FlatIndex chunk);
  /// Takes the block from the chunk and returns it. free_block() also makes it a free block.
  BlockIndex leave_block(Chunk& chunk, ItemIndex after, StoreIndex store);
  void free_block(Chunk& chunk, ItemIndex after, StoreIndex store);
  /// `item` has used the chunk: frees its block, lets the chunk leave, or neither.
  void after_use(FlatIndex chunk, ItemIndex item);

  const ChunkTrace& chunk_trace_;
  uint32_t max_blocks_;
  uint32_t num_protected_;
  std::vector<ItemIndex> rounds_;
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
  struct Protected {
    NeedIndex next_need;
    size_t num_assignments;  // made before the chunk was used
  };
  std::deque<Protected> protected_;  // by time of use
  IndexSet candidates_;        // for eviction, by index of the next need; the greatest is furthest
  FreedBlocks free_, stored_;  // stored_: free after a store
};

}  // namespace ebb
