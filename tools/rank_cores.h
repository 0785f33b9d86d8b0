// Which cores a rank uses, if it shares a machine with other ranks.
//
// A launcher may bind each rank to cores of its own (mpirun and srun do). Ranks that may use the
// same cores divide them: where these cores are on several NUMA nodes, each rank is bound to some
// of the nodes, so that its threads are near the memory that they touch first.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <span>

#include "comm/ranks.h"
#include "system/core_set.h"

namespace ebb {

/// The cores of a rank, and how many ranks of the machine use them, this one included.
struct CoreShare {
  CoreSet cores;
  uint32_t num_sharing = 1;
};
/// The share of the rank with the number `rank` on its machine. `allowed`: the cores that each rank
/// of the machine may use; `nodes`: the cores of each NUMA node. A pure function. REQUIRES: the
/// rank may use a core.
CoreShare core_share(std::span<const CoreSet> allowed, uint32_t rank,
                     std::span<const CoreSet> nodes);

/// Binds this process to its share, and returns how many ranks use the same cores, this one
/// included. Collective; throws RankLost. Threads that run already are not bound. A system that
/// does not allow it is no error.
uint32_t take_cores(Ranks& ranks);

}  // namespace ebb
