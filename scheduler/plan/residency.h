// The planner's first pass: which chunk is in which block when. Pure decisions; plan.cpp turns them
// into operations.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/index_set.h"
#include "scheduler/plan/plan.h"

namespace ebb {

/// Positions are items after which something may happen; kStart is before item 0.
constexpr uint32_t kStart = UINT32_MAX;
constexpr uint32_t order_of(uint32_t position) { return position == kStart ? 0 : position + 1; }

/// A chunk going home: behind the item that used it last.
struct Store {
  uint32_t chunk;
  uint32_t after_item;
  uint32_t op = kNone;
};

/// A chunk getting a block: a load where its content is at home.
struct Assignment {
  uint32_t chunk;
  uint32_t deadline;  // the item that needs it
  uint32_t position;  // the item after which its block is free
  uint32_t block;
  bool copy;
  uint32_t own_store;     // index of the store that took its content home, or kNone
  uint32_t victim;        // the chunk that had the block, or kNone
  uint32_t victim_item;   // its last use
  uint32_t victim_store;  // index of its store, or kNone
};

/// Blocks by the time from which they are free; those of one time by number.
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
  /// Of those that are free at `order` the last but so many, else the first.
  uint32_t take_late(uint32_t order, size_t but);

 private:
  uint32_t take(size_t at);

  std::vector<Freed> freed_;  // ascending
  size_t first_ = 0;
};

/// Furthest next use (Belady) over the program, except that what was used just now rests a while:
/// its block could be given on only after its last user, and after a store where it has to go home.
///
/// Held chunks are there when the program begins. Once they are finished, and their update had time
/// to be made, they come back to blocks that nobody needs any more, and stay to the end: of what is
/// brought they are the last. What the
/// device updates stays all the time, and its gradient until then; and so do held chunks where
/// nothing is updated.
class Residency {
 public:
  /// A chunk rests until `num_protected` others have come; 0: Belady's rule alone. REQUIRES: beside
  /// the `held`, and what the device updates, there are blocks enough for every item.
  Residency(const ChunkTrace& chunk_trace, uint32_t num_blocks, uint32_t num_protected,
            std::vector<uint32_t> resident = {});
  void run();

  std::vector<Assignment> assignments;
  std::vector<Store> stores;
  uint32_t num_blocks_used() const { return static_cast<uint32_t>(blocks_.size()); }
  std::vector<uint32_t> stored_sums;  ///< sum chunks that leave between their uses, ascending
  std::vector<uint32_t> stored_activations;  ///< arena chunks that leave while they rest, ascending
  uint32_t num_evicted_residents = 0;        ///< those that had to leave before they were used

  struct Block {
    uint32_t chunk = kNone;
    uint32_t free_after = kStart;
    uint32_t free_from = kStart;  // `store` is over by then, about
    uint32_t store = kNone;
    bool busy = false;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  /// Weights that are on the device before run() and after, and where they are now.
  std::vector<ResidentChunk> weights_here() const;

 private:
  struct Chunk {
    uint32_t block = kNone;
    uint32_t former_block = kNone;
    uint32_t last_item = kStart;
    uint32_t next_item = kNone;
    uint32_t cursor = 0;  // in its list of needs
    uint32_t home_store = kNone;
    uint32_t replaced_by = kNone;  // the bring that took its block
    bool dirty = false;
  };

  uint32_t next_use(uint32_t chunk) const;
  uint32_t choose_block(uint32_t item, Touch touch);
  void may_leave(uint32_t chunk);
  void end_protection();
  uint32_t choose_victim(uint32_t item);
  uint32_t evict(uint32_t item);
  void begin_busy(uint32_t chunk, uint32_t item, Touch touch);
  void begin_idle(uint32_t chunk, uint32_t item);
  void end_life(uint32_t chunk, uint32_t item);
  void assign_block(uint32_t chunk, uint32_t item, Touch touch);
  void assign(uint32_t chunk, uint32_t block, uint32_t deadline, uint32_t not_before, bool copy);
  void allocate(uint32_t chunk);
  void allocate_weights();
  FreedBlocks& freed(const Block& block) { return block.store == kNone ? free_ : stored_; }
  uint32_t after_rounds(uint32_t item) const;
  uint32_t end() const { return static_cast<uint32_t>(chunk_trace_.items.size()); }
  void return_residents();
  uint32_t block_to_return_to(uint32_t chunk);
  uint32_t leave_block(Chunk& chunk, uint32_t after, uint32_t store);
  void free_block(Chunk& chunk, uint32_t after, uint32_t store);
  void after_use(uint32_t chunk, uint32_t item);

  const ChunkTrace& chunk_trace_;
  uint32_t max_blocks_;
  uint32_t num_protected_;
  std::vector<uint32_t> rounds_;  // items
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> residents_;
  std::vector<bool> is_resident_;  // [chunk]
  std::vector<bool> stays_;        // [chunk] until its last use, weights to the end
  std::vector<Block> blocks_;
  struct Protected {
    uint32_t next_need;
    size_t num_assignments;  // before it was used
  };
  std::deque<Protected> protected_;  // by time of use
  IndexSet candidates_;        // for leaving, by their next need: the furthest is the greatest
  FreedBlocks free_, stored_;  // the latter's content goes home
};

}  // namespace ebb
