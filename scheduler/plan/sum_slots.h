// Memory for gradient sums on their way to the rank that adds them.
//
// A chunk of gradient sums is stored in a slot of its rank's memory, of the host or of the device.
// Its content stays there until it is added for all parameter chunks to which it belongs: by their
// owners, or in a chain by ranks of this machine. SumSlots assigns the slots while a plan is made,
// so the calls come in the order of the plan. Part of make_plan(); one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "chunk/index.h"
#include "chunk/layout.h"

namespace ebb {

struct ChunkTrace;  // scheduler/plan/chunk_trace.h

/// The chunks of gradient sums, counted within a group, of which the gradient of a parameter chunk
/// is made: ascending. They are the same for each group. trained[p]: the step computes a gradient
/// of parameter p.
std::vector<uint32_t> sum_chunks_of(const Layout& layout, const std::vector<bool>& trained,
                                    ChunkIndex chunk);

class SumSlots {
 public:
  /// `layout` has the groups of one rank only, and must outlive this object. `num_adders`: so many
  /// ranks add its sums.
  SumSlots(const Layout& layout, const std::vector<bool>& trained, uint32_t num_adders);

  struct Slot {
    BufferIndex slot = kNone;
    /// The parameter chunk whose sums must be added before the slot is free; kNone: it is free.
    ChunkIndex free_after = kNone;
  };
  /// The slot for a chunk of gradient sums that is stored now, counted over all groups. REQUIRES:
  /// called once for each such chunk.
  Slot take(uint32_t sum_chunk);
  /// The sums of a parameter chunk are added now. REQUIRES: take() was called for all of them.
  void add(ChunkIndex chunk);
  /// The number of slots that were needed so far.
  uint32_t num_slots() const { return num_slots_; }

 private:
  const Layout& layout_;
  const size_t num_resting_;
  std::vector<std::vector<uint32_t>> sums_of_;  // [parameter chunk] within a group
  std::vector<uint32_t> num_left_;    // [sum chunk] parameter chunks that have not been added
  std::vector<BufferIndex> slot_of_;  // [sum chunk]
  std::deque<Slot> free_;             // in the order in which they become free
  uint32_t num_slots_ = 0;
};

/// The number of slots that a plan needs, whatever its schedule decides. REQUIRES:
/// chunk_trace.stores_groups.
uint32_t count_sum_slots(const ChunkTrace& chunk_trace, const Layout& layout, uint32_t num_adders);

}  // namespace ebb
