// Which rank of how many, and which rank owns a chunk. Plain values.
#pragma once

#include <cstdint>

#include "chunk/index.h"

namespace ebb {

/// The rank that stores and updates a parameter chunk. Consecutive chunks have different owners, so
/// that all links and memories can work at the same time.
inline uint32_t owner_of(ChunkIndex chunk, uint32_t num_ranks) { return chunk % num_ranks; }

/// A rank is a thread or a process with a device. All ranks of a run train one model together.
struct RankPlace {
  uint32_t rank = 0;
  uint32_t num_ranks = 1;
  /// Each has the same number of ranks, numbered machine by machine. REQUIRES: it divides
  /// num_ranks.
  uint32_t num_machines = 1;

  uint32_t ranks_per_machine() const { return num_ranks / num_machines; }
  uint32_t machine_of(uint32_t of) const { return of / ranks_per_machine(); }
  /// Is the rank `of` on the machine of this rank, so that this rank can address its memory?
  bool is_near(uint32_t of) const { return machine_of(of) == machine_of(rank); }
  /// The rank of a machine that fetches or adds something of a chunk for all ranks of its machine.
  /// On the machine of the owner it is the owner.
  uint32_t rank_for(ChunkIndex chunk, uint32_t machine) const {
    return machine * ranks_per_machine() + chunk % ranks_per_machine();
  }
  /// The rank of this machine that fetches the weights of a chunk of another machine for all its
  /// ranks (ChunkRecord::is_copied).
  uint32_t fetcher_of(ChunkIndex chunk) const { return rank_for(chunk, machine_of(rank)); }
  /// Does this rank fetch the chunk for its machine? REQUIRES: the chunk is of another machine.
  bool fetches(ChunkIndex chunk) const { return fetcher_of(chunk) == rank; }
  bool operator==(const RankPlace&) const = default;
};

}  // namespace ebb
