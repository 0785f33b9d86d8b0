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

/// A position is an item after which something may happen; kStart is before item 0.
constexpr uint32_t kStart = UINT32_MAX;
/// Maps positions to numbers that can be compared; kStart becomes 0.
constexpr uint32_t order_of(uint32_t position) { return position == kStart ? 0 : position + 1; }

/// A chunk is stored to the host, after the item that used it last.
struct Store {
  uint32_t chunk;
  uint32_t after_item;
  uint32_t op = kNone;  // the operation that stores it; the Emitter sets it
};

/// A chunk gets a block. With `copy` it is loaded from host memory, otherwise only allocated.
struct Assignment {
  uint32_t chunk;
  uint32_t deadline;  // the item that needs it
  uint32_t position;  // the item after which the chunk gets the block
  uint32_t block;
  bool copy;
  uint32_t own_store;     // index of the store that copied its content to the host, or kNone
  uint32_t victim;        // the chunk that had the block, or kNone
  uint32_t victim_item;   // the item that used the victim last
  uint32_t victim_store;  // index of its store, or kNone
};

/// Free blocks, by the time from which they are free, then by number.
class FreedBlocks {
 public:
  struct Freed {
    uint32_t order, block;  // order_of(position)
    auto operator<=>(const Freed&) const = default;
  };
  bool empty() const { return first_ == freed_.size(); }
  void add(Freed freed);
  void remove(Freed freed);
  /// REQUIRES: not empty, for all three.
  Freed first() const { return freed_[first_]; }
  uint32_t take_first();
  /// Takes one of the blocks that are free at `order`: not the `but` blocks that became free last,
  /// but the one before them. If there are too few, takes the first block.
  uint32_t take_late(uint32_t order, size_t but);

 private:
  uint32_t take(size_t at);

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
    uint32_t chunk = kNone;
    uint32_t free_after = kStart;
    uint32_t free_from = kStart;  // an estimate: by then `store` is done
    uint32_t store = kNone;
    bool busy = false;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Stores the blocks of the resident chunks in `records`: before run() the blocks at the start,
  /// afterwards those at the end.
  void read_blocks(uint32_t ChunkRecord::*block, std::span<ChunkRecord> records) const;

 private:
  struct Chunk {
    uint32_t block = kNone;
    uint32_t former_block = kNone;
    uint32_t last_item = kStart;
    uint32_t next_item = kNone;
    uint32_t cursor = 0;  // in its list of needs
    uint32_t home_store = kNone;
    uint32_t replaced_by = kNone;  // the assignment that took its block
    bool dirty = false;            // host memory does not have its content
    bool resident = false;         // weights that leave for their update and come back
    bool stays = false;  // it keeps its block: weights to the end, others to the last use
  };

  uint32_t next_use(uint32_t chunk) const;
  uint32_t choose_block(uint32_t item, Touch touch);
  /// Protects the chunk for a while. Then it is a candidate for eviction.
  void may_leave(uint32_t chunk);
  void end_protection();
  uint32_t choose_victim(uint32_t item);
  uint32_t evict(uint32_t item);
  // An arena chunk is needed, becomes idle, or has no live activation any more.
  void begin_busy(uint32_t chunk, uint32_t item, Touch touch);
  void begin_idle(uint32_t chunk, uint32_t item);
  void end_life(uint32_t chunk, uint32_t item);
  void assign_block(uint32_t chunk, uint32_t item, Touch touch);
  void assign(uint32_t chunk, uint32_t block, uint32_t deadline, uint32_t not_before, bool copy);
  void allocate(uint32_t chunk);
  void allocate_weights(std::span<const ChunkRecord> records);
  FreedBlocks& freed(const Block& block) { return block.store == kNone ? free_ : stored_; }
  uint32_t after_rounds(uint32_t item) const;
  uint32_t end() const { return static_cast<uint32_t>(chunk_trace_.items.size()); }
  void return_residents();
  uint32_t block_to_return_to(uint32_t chunk);
  /// Takes the block from the chunk and returns it. free_block() also makes it a free block.
  uint32_t leave_block(Chunk& chunk, uint32_t after, uint32_t store);
  void free_block(Chunk& chunk, uint32_t after, uint32_t store);
  /// `item` has used the chunk: frees its block, lets the chunk leave, or neither.
  void after_use(uint32_t chunk, uint32_t item);

  const ChunkTrace& chunk_trace_;
  uint32_t max_blocks_;
  uint32_t num_protected_;
  std::vector<uint32_t> rounds_;  // items
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
  struct Protected {
    uint32_t next_need;
    size_t num_assignments;  // made before the chunk was used
  };
  std::deque<Protected> protected_;  // by time of use
  IndexSet candidates_;        // for eviction, by index of the next need; the greatest is furthest
  FreedBlocks free_, stored_;  // stored_: free after a store
};

}  // namespace ebb
