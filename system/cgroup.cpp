#include "system/cgroup.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace ebb {
namespace {

/// Whether a list like "cpu,memory" contains a name like "memory".
bool has_name(std::string_view list, std::string_view name) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

/// The quota of one cgroup. Version 2 has "QUOTA PERIOD" or "max PERIOD" in one file. Version 1 has
/// one file for each number, and -1 means no quota.
std::optional<double> quota_in(const std::string& folder, CgroupVersion version) {
  const bool one = version == CgroupVersion::One;
  std::ifstream quota_file(folder + (one ? "cpu.cfs_quota_us" : "cpu.max"));
  std::ifstream period_file(one ? folder + "cpu.cfs_period_us" : "");
  int64_t quota = 0, period = 0;
  if (!(quota_file >> quota) || !((one ? period_file : quota_file) >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace

std::vector<std::string> Cgroup::folders() const {
  std::vector<std::string> all;
  std::string below = path == "/" ? "" : path;
  for (;;) {
    all.push_back(mount + below + "/");
    const size_t slash = below.rfind('/');
    if (slash == std::string::npos) return all;
    below.resize(slash);
  }
}

std::vector<Cgroup> own_cgroups(std::string_view controller) {
  std::vector<Cgroup> groups;
  std::ifstream file("/proc/self/cgroup");
  // Lines are "ID:CONTROLLERS:PATH" for version 1 and "0::PATH" for version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (list.empty()) {
      groups.push_back({CgroupVersion::Two, "/sys/fs/cgroup", path});
    } else if (has_name(list, controller)) {
      groups.push_back({CgroupVersion::One, "/sys/fs/cgroup/" + std::string(controller), path});
    }
  }
  return groups;
}

std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return static_cast<size_t>(value);
}

std::optional<double> cpu_quota(const Cgroup& cgroup) {
  std::optional<double> least;
  for (const std::string& folder : cgroup.folders()) {
    const auto quota = quota_in(folder, cgroup.version);
    if (quota) least = std::min(*quota, least.value_or(*quota));
  }
  return least;
}

}  // namespace ebb
