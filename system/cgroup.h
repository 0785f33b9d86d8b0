// The cgroups of this process, and their limits on processor time. All functions only read from the
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
  std::string mount;  ///< folder of the cgroup root
  std::string path;   ///< below the root, "" or "/..."

  /// The folders from this cgroup up to the root, each ending in '/'.
  std::vector<std::string> folders() const;
};
/// The cgroups of this process for a controller ("memory", "cpu"): of version 2 and of version 1.
std::vector<Cgroup> own_cgroups(std::string_view controller);

/// The number in a file of a cgroup; nullopt if the file does not exist or contains "max".
std::optional<size_t> number_in(const std::string& path);

/// The number of processors that the tightest quota up to the root allows; nullopt: no quota.
std::optional<double> cpu_quota(const Cgroup& cgroup);

}  // namespace ebb
