#include "system/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "system/cgroup.h"

namespace ebb {

namespace {

/// The number of cores in the affinity mask. The mask grows until it is large enough, because the
/// kernel refuses smaller masks.
int num_cores_in_mask() {
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool fits = sched_getaffinity(0, bytes, set) == 0;
    const int count = fits ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (fits) return count;
  }
  return 1;
}

}  // namespace

int num_usable_cores() {
  double cores = num_cores_in_mask();
  for (const Cgroup& cgroup : own_cgroups("cpu")) {
    cores = std::min(cores, std::ceil(cpu_quota(cgroup).value_or(cores)));
  }
  return std::max(1, static_cast<int>(cores));
}

}  // namespace ebb
