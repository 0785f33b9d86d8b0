// The cgroups that this process is in, and what a quota leaves of the processors: pure reads of the
// system. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

enum class CgroupVersion { One, Two };

struct Cgroup {
  CgroupVersion version = CgroupVersion::Two;
  std::string mount;  ///< folder of the root
  std::string path;   ///< below it, "" or "/..."

  /// From it up to the root, each ending in '/'.
  std::vector<std::string> folders() const;
};
/// This process's, of version 2 and of version 1 for a controller ("memory", "cpu").
std::vector<Cgroup> own_cgroups(std::string_view controller);

/// The number in a cgroup's file; nullopt where there is none or it says "max".
std::optional<size_t> number_in(const std::string& path);

/// Processors' worth of time that the tightest quota up to the root allows; nullopt: no quota.
std::optional<double> cpu_quota(const Cgroup& cgroup);

}  // namespace ebb
