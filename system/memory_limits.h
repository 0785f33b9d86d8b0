// The limits of host memory: how much can be allocated, and how much can be locked. All functions
// only read from the system. Thread-safe.
#pragma once

#include <cstddef>
#include <optional>

#include "system/cgroup.h"

namespace ebb {

struct MemoryLimits {
  size_t total_bytes = 0;
  size_t available_bytes = 0;                     ///< the kernel's estimate of allocatable memory
  std::optional<size_t> cgroup_limit_bytes = {};  ///< nullopt: unlimited
  std::optional<size_t> cgroup_used_bytes = {};   ///< without the page cache
  std::optional<size_t> memlock_bytes = {};       ///< nullopt: unlimited

  /// The bytes that a run may use: available memory, or the unused memory of the cgroup if it is
  /// less.
  size_t usable_bytes() const;
};
MemoryLimits read_memory_limits();

/// Sets the tightest limit from a cgroup up to its root, and the bytes used under this limit.
/// Limits of `total_bytes` or more are ignored. The page cache counts against a limit in the
/// kernel, but not here: the kernel frees it when the limit is reached.
void read_cgroup(MemoryLimits& limits, const Cgroup& cgroup);

}  // namespace ebb
