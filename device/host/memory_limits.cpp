#include "device/host/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace ebb {
namespace {

/// A field that a /proc file gives in KiB, in bytes; 0 where it has none.
size_t kib_field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

/// The number in a cgroup file; nullopt where there is none or it says "max".
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return static_cast<size_t>(value);
}

/// This process's cgroup: its path below the controller's mount, "" where there is none.
std::string cgroup_path(std::string_view prefix) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(prefix);
    if (at != std::string::npos) return line.substr(at + prefix.size());
  }
  return "";
}

/// What a cgroup's memory.stat says of pages of files, those of its children included.
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

void read_cgroup(MemoryLimits& limits, const std::string& mount, std::string path,
                 CgroupVersion version) {
  const bool one = version == CgroupVersion::One;
  for (;;) {
    const std::string folder = mount + path + "/";
    const auto limit = number_in(folder + (one ? "memory.limit_in_bytes" : "memory.max"));
    const bool real = limit && *limit < limits.total_bytes;  // version 1 says "huge" for unlimited
    if (real && (!limits.cgroup_limit_bytes || *limit < *limits.cgroup_limit_bytes)) {
      limits.cgroup_limit_bytes = limit;
      limits.cgroup_used_bytes = used_bytes(folder, version);
    }
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

MemoryLimits read_memory_limits() {
  MemoryLimits limits;
  limits.total_bytes = kib_field("/proc/meminfo", "MemTotal:");
  limits.available_bytes = kib_field("/proc/meminfo", "MemAvailable:");
  read_cgroup(limits, "/sys/fs/cgroup", cgroup_path("0::"), CgroupVersion::Two);
  read_cgroup(limits, "/sys/fs/cgroup/memory", cgroup_path(":memory:"), CgroupVersion::One);
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
