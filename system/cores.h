// Which processor cores this process may use, and how many. Thread-safe.
#pragma once

#include "system/core_set.h"

namespace ebb {

/// The number of cores in the affinity mask of this process, or fewer where a CPU quota of its
/// cgroup allows less: with more threads than that, all threads stop when the quota is used up.
int num_usable_cores();

/// The affinity mask of this process; empty if it cannot be read or has other cores than a CoreSet.
CoreSet cores_of_process();
/// Binds the calling thread, and threads that it will start, to these cores. Does nothing if the
/// system does not allow it.
void bind_process(const CoreSet& cores);

}  // namespace ebb
