// The second part of the planner: it decides which chunk is in which block at which item. The
// emitter (emitter.h) makes operations from the decisions. Part of make_plan(); one thread. It has
// no side effects outside its objects.
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

/// A position is an item after which a chunk may be stored or get a block. kStart is the position
/// before item 0.
constexpr ItemIndex kStart = kNone;
/// Maps positions to numbers that can be compared; kStart becomes 0.
constexpr uint32_t order_of(ItemIndex position) { return position == kStart ? 0 : position + 1; }

/// A chunk is stored to the host, after the item that used it last.
struct Store {
  FlatIndex chunk;
  ItemIndex after_item;
  bool is_last = false;  // no item uses the chunk again: it is a result of the step
  OpIndex op = kNone;    // the operation that stores it; the Emitter sets it
};

/// A chunk gets a block. With `copy` it is loaded from host memory, otherwise only allocated.
struct Assignment {
  FlatIndex chunk;
  // The item that needs the chunk. For a resident chunk that returns, the number of items.
  ItemIndex deadline;
  ItemIndex position;  // the item after which the chunk gets the block
  BlockIndex block;
  bool copy;
  StoreIndex own_store;     // the last store of this chunk, for which a load waits, or kNone
  FlatIndex victim;         // the chunk that had the block, or kNone
  ItemIndex victim_item;    // the item that used the victim last
  StoreIndex victim_store;  // the store of the victim, after which the block is free, or kNone
};

/// Free blocks, sorted by the position from which they are free, then by number.
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
  /// The next three functions REQUIRE: not empty().
  Freed first() const { return freed_[first_]; }
  BlockIndex take_first();
  /// Leaves out the `but` blocks that became free last, of those that are free at `order`, and
  /// takes the newest of the others. If there is no other, takes the first block. So blocks that
  /// have been free for long stay for loads, which can then start early.
  BlockIndex take_late(uint32_t order, size_t but);

 private:
  BlockIndex take(size_t at);

  std::vector<Freed> freed_;  // ascending
  size_t first_ = 0;
};

/// If no block is free, a chunk that needs a block evicts the chunk whose next use is furthest away
/// (Belady). Chunks that were used just now are protected. Their block would not be free soon:
/// their last item must run first, and if host memory does not have their content, a store too.
///
/// Resident weights are on the device when the step begins. They leave the device after their last
/// use, or earlier if they are evicted. After the gradient of their chunk is rounded, and its
/// update had time to run, they are loaded again, into blocks that nothing else needs, and stay
/// until the end of the step. These loads are the last ones of a step. Chunks with device updates
/// keep their blocks for the whole step, and the blocks of their gradients until the update. Kept
/// sums keep their blocks from their first use until they are rounded. In a
/// plan without updates, resident weights keep their blocks from the beginning to the end of the
/// plan.
class Residency {
 public:
  /// A chunk is protected until `num_protected` other chunks have got blocks. With 0 there is no
  /// protection. `records` has one record for each parameter chunk. `chunk_trace` must outlive this
  /// object. REQUIRES: in addition to the blocks of resident chunks and device updates there are
  /// enough blocks for every item.
  Residency(const ChunkTrace& chunk_trace, uint32_t num_blocks, uint32_t num_protected,
            std::span<const ChunkRecord> records);
  /// Makes all decisions. Called once. Throws PlanError if an item needs more blocks than there
  /// are.
  void run();

  // The decisions, complete after run().
  std::vector<Assignment> assignments;
  std::vector<Store> stores;
  uint32_t num_blocks_used() const { return static_cast<uint32_t>(blocks_.size()); }
  std::vector<uint32_t> stored_sums;         ///< sum chunks stored between their uses, ascending
  std::vector<uint32_t> stored_activations;  ///< arena chunks stored while idle, ascending
  uint32_t num_evicted_residents = 0;  ///< resident chunks that were evicted before their first use

  struct Block {
    FlatIndex chunk = kNone;
    ItemIndex free_after = kStart;
    ItemIndex free_from = kStart;  // an estimate of the position at which `store` is complete
    StoreIndex store = kNone;      // the store after which the block is free, or kNone
    bool busy = false;             // a chunk is in the block
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Sets the member `block` of all records: to the block in which the weights of the chunk are, or
  /// to kNone. Before run() these are the blocks at the start of the plan, after run() those at the
  /// end.
  void read_blocks(BlockIndex ChunkRecord::*block, std::span<ChunkRecord> records) const;

 private:
  struct Chunk {
    BlockIndex block = kNone;
    BlockIndex former_block = kNone;
    ItemIndex last_item = kStart;
    ItemIndex next_item = kNone;
    uint32_t cursor = 0;                  // the number of its needs that are past
    StoreIndex home_store = kNone;        // its last store to a host buffer
    AssignmentIndex replaced_by = kNone;  // the assignment that took its block
    bool dirty = false;                   // host memory does not have its content
    bool resident = false;  // weights that leave after their last use and are loaded again
    bool stays = false;     // it keeps its block: weights to the end, gradients to their last use
    bool keeps_block = false;  // as `stays`, but the gradient is stored after the last use
  };

  ItemIndex next_use(FlatIndex chunk) const;
  BlockIndex choose_block(ItemIndex item, Touch touch);
  /// Protects the chunk until `num_protected_` others got blocks. Then it may be evicted.
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
  /// Called when `item` has used the chunk. After its last use, frees its block. Before that, calls
  /// may_leave(). Does neither if the chunk keeps its block.
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
