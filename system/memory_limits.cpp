#include "system/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace ebb {
namespace {

/// A field of a /proc file in bytes; the file has KiB. 0 if the field is missing.
size_t kib_field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

/// The bytes of the page cache of a cgroup and its children, from its memory.stat.
size_t file_bytes(const std::string& path, CgroupVersion version) {
  const std::string total = version == CgroupVersion::One ? "total_" : "";
  size_t sum = 0;
  std::ifstream file(path);
  std::string name;
  for (uint64_t bytes = 0; file >> name >> bytes;) {
    if (name == total + "active_file" || name == total + "inactive_file") sum += bytes;
  }
  return sum;
}

std::optional<size_t> used_bytes(const std::string& folder, CgroupVersion version) {
  const bool one = version == CgroupVersion::One;
  const auto used = number_in(folder + (one ? "memory.usage_in_bytes" : "memory.current"));
  if (!used) return std::nullopt;
  return *used - std::min(*used, file_bytes(folder + "memory.stat", version));
}

}  // namespace

void read_cgroup(MemoryLimits& limits, const Cgroup& cgroup) {
  const bool one = cgroup.version == CgroupVersion::One;
  for (const std::string& folder : cgroup.folders()) {
    const auto limit = number_in(folder + (one ? "memory.limit_in_bytes" : "memory.max"));
    const bool real = limit && *limit < limits.total_bytes;  // version 1 says "huge" for unlimited
    if (real && (!limits.cgroup_limit_bytes || *limit < *limits.cgroup_limit_bytes)) {
      limits.cgroup_limit_bytes = limit;
      limits.cgroup_used_bytes = used_bytes(folder, cgroup.version);
    }
  }
}

MemoryLimits read_memory_limits() {
  MemoryLimits limits;
  limits.total_bytes = kib_field("/proc/meminfo", "MemTotal:");
  limits.available_bytes = kib_field("/proc/meminfo", "MemAvailable:");
  for (const Cgroup& cgroup : own_cgroups("memory")) read_cgroup(limits, cgroup);
  rlimit memlock = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY) {
    limits.memlock_bytes = static_cast<size_t>(memlock.rlim_cur);
  }
  return limits;
}

size_t MemoryLimits::usable_bytes() const {
  if (!cgroup_limit_bytes) return available_bytes;
  const size_t used = cgroup_used_bytes.value_or(0);
  const size_t left = *cgroup_limit_bytes > used ? *cgroup_limit_bytes - used : 0;
  return std::min(available_bytes, left);
}

}  // namespace ebb
