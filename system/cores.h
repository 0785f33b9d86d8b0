// How many processor cores this process may use. Thread-safe.
#pragma once

namespace ebb {

/// The number of cores in the affinity mask of this process, or fewer where a CPU quota of its
/// cgroup allows less: with more threads than that, all threads stop when the quota is used up.
int num_usable_cores();

}  // namespace ebb
