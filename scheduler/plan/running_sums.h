// The sums of groups on their way from machine to machine (Division::chains_sums).
//
// On each machine one rank adds the groups of its machine for a parameter chunk to the running sum
// of the machine before, which it copies first (FetchSum, AddGroups). So the groups are added in
// their order. The running sum of the last machine is that of all groups. The owner of the chunk
// copies it, unless it is the rank that added last, and rounds it to the finished gradient
// (FetchSum, RoundTotal). A running sum waits in a slot in the host memory of the rank that added
// it, until next_reader() has copied or rounded it. docs/ranks.md, "Several machines". Pure
// functions.
#pragma once

#include <cstdint>

#include "chunk/index.h"
#include "chunk/rank_place.h"

namespace ebb {

/// The slots of a rank for running sums. There are three, so that at the same time the rank can
/// copy one running sum and add to a second, and the next machine can copy the third.
inline constexpr uint32_t kRunningSums = 3;
/// One more slot, to which an owner that is not on the last machine copies the sum of all groups.
inline constexpr BufferIndex kTotalSlot{kRunningSums};
inline constexpr uint32_t kRunningSlots = kRunningSums + 1;

/// The slot of a running sum on each rank that adds to it. A rank adds every n-th chunk, where n is
/// the number of ranks of a machine, so it usually uses the slots in turn. If another chunk had the
/// slot before, next_reader() must have copied its running sum first, or rounded it if it is this
/// rank.
inline BufferIndex running_slot_of(ChunkIndex chunk, const RankPlace& place) {
  return BufferIndex(chunk / place.ranks_per_machine() % kRunningSums);
}

/// Are the groups of the machine of this rank the first, or the last ones?
inline bool is_first_machine(const RankPlace& place) { return place.machine_of(place.rank) == 0; }
inline bool is_last_machine(const RankPlace& place) {
  return place.machine_of(place.rank) + 1 == place.num_machines;
}

/// For a chunk whose groups this rank adds: the rank from which it copies the running sum.
/// REQUIRES: !is_first_machine(place).
inline uint32_t previous_adder(ChunkIndex chunk, const RankPlace& place) {
  return place.rank_for(chunk, place.machine_of(place.rank) - 1);
}
/// The rank that reads the running sum of this rank next: the one that adds on the next machine, or
/// for the sum of all groups the owner, which may be this rank.
inline uint32_t next_reader(ChunkIndex chunk, const RankPlace& place) {
  return is_last_machine(place) ? owner_of(chunk, place.num_ranks)
                                : place.rank_for(chunk, place.machine_of(place.rank) + 1);
}
/// The rank that adds the last groups of a chunk.
inline uint32_t last_adder(ChunkIndex chunk, const RankPlace& place) {
  return place.rank_for(chunk, place.num_machines - 1);
}

/// The number of machines that add after that of this rank. An owner rounds the sum of a chunk when
/// it has added the groups of so many further chunks. By then the running sum has probably passed
/// these machines, so the owner need not wait.
inline uint32_t num_machines_after(const RankPlace& place) {
  return place.num_machines - 1 - place.machine_of(place.rank);
}

}  // namespace ebb
