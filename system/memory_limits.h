// How much host memory may be taken, and how much of it may be locked: pure reads of the system.
// Thread-safe.
#pragma once

#include <cstddef>
#include <optional>

#include "system/cgroup.h"

namespace ebb {

struct MemoryLimits {
  size_t total_bytes = 0;
  size_t available_bytes = 0;  ///< the kernel's estimate of what can be taken now
  std::optional<size_t> cgroup_limit_bytes = {};  ///< nullopt: unlimited
  std::optional<size_t> cgroup_used_bytes = {};   ///< but for what files in memory take of it
  std::optional<size_t> memlock_bytes = {};       ///< nullopt: unlimited

  /// What a run may take: available memory, less where the cgroup leaves less.
  size_t usable_bytes() const;
};
MemoryLimits read_memory_limits();

/// Sets the tightest limit from a cgroup up to its root, and what is used under it. Limits of
/// `total_bytes` and more are none. Files that the kernel keeps in memory count against a limit,
/// but make room when it is reached.
void read_cgroup(MemoryLimits& limits, const Cgroup& cgroup);

}  // namespace ebb
