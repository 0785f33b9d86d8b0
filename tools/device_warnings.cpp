#include "tools/device_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr const char* kHugePageFile = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The first line of a file; "" if there is no file.
std::string line_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// -1 if the machine has only one node or does not report one.
std::optional<unsigned> node_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return static_cast<unsigned>(node);
}

bool is_gpu(const std::filesystem::path& device) {
  return line_in(device / "vendor") == "0x10de" && line_in(device / "class").starts_with("0x03");
}

size_t memory_of(const MachineInfo& machine, unsigned node) {
  for (const NumaNode& n : machine.nodes) {
    if (n.index == node) return n.memory_bytes;
  }
  return 0;
}

size_t memory_of_nodes(const MachineInfo& machine) {
  size_t bytes = 0;
  for (const NumaNode& n : machine.nodes) bytes += n.memory_bytes;
  return bytes;
}

}  // namespace

HugePages parse_huge_pages(std::string_view setting) {
  if (setting.find("[never]") != std::string_view::npos) return HugePages::Never;
  const bool given = setting.find("[always]") != std::string_view::npos ||
                     setting.find("[madvise]") != std::string_view::npos;
  return given ? HugePages::Given : HugePages::Unknown;
}

HugePages read_huge_pages() { return parse_huge_pages(line_in(kHugePageFile)); }

std::vector<GpuPlace> read_gpu_places(const std::filesystem::path& folder) {
  std::vector<GpuPlace> gpus;
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator(folder, none)) {
    if (!is_gpu(device.path())) continue;
    gpus.push_back({device.path().filename().string(), node_in(device.path() / "numa_node")});
  }
  std::ranges::sort(gpus, {}, &GpuPlace::address);
  return gpus;
}

WarningFacts read_warning_facts() {
  return {.machine = read_machine(),
          .limits = read_memory_limits(),
          .huge_pages = read_huge_pages(),
          .gpus = read_gpu_places("/sys/bus/pci/devices")};
}

std::optional<std::string> memlock_warning(const WarningFacts& facts) {
  const auto& limit = facts.limits.memlock_bytes;
  const size_t usable = facts.limits.usable_bytes();
  if (facts.gpus.empty() || !limit || *limit >= usable) return std::nullopt;
  return fmt::format(
      "the memlock limit of {} may keep the GPU driver from pinning all of the {} that a run may "
      "use: raise it with `ulimit -l unlimited`, with a memlock line in "
      "/etc/security/limits.conf, or for a container with --ulimit memlock=-1",
      format_bytes(*limit), format_bytes(usable));
}

std::optional<std::string> far_memory_warning(const WarningFacts& facts) {
  const size_t total = memory_of_nodes(facts.machine);
  for (const GpuPlace& gpu : facts.gpus) {
    if (!gpu.node) continue;
    const size_t near = memory_of(facts.machine, *gpu.node);
    if (near == total) continue;
    return fmt::format(
        "the GPU at {} is on NUMA node {}: {} of {} are on other nodes, and copies from there "
        "share "
        "the link between processors; start a run that needs less than {} with `numactl "
        "--cpunodebind={} --membind={} ebb train ...`",
        gpu.address, *gpu.node, format_bytes(total - near), format_bytes(total), format_bytes(near),
        *gpu.node, *gpu.node);
  }
  return std::nullopt;
}

std::optional<std::string> huge_page_warning(const WarningFacts& facts) {
  if (facts.huge_pages != HugePages::Never) return std::nullopt;
  return fmt::format(
      "huge pages are off, so the optimizer and the copies miss the TLB at every 4 KiB: allow huge "
      "pages as root with `echo madvise > {}`",
      kHugePageFile);
}

std::optional<std::string> cgroup_warning(const WarningFacts& facts) {
  const auto& limit = facts.limits.cgroup_limit_bytes;
  if (!limit || *limit >= facts.limits.total_bytes) return std::nullopt;
  return fmt::format(
      "the cgroup allows {} of the machine's {}, of which {} are in use: plans stay below this "
      "limit; raise it with `systemd-run --scope -p MemoryMax=...`, or --memory of a container",
      format_bytes(*limit), format_bytes(facts.limits.total_bytes),
      format_bytes(facts.limits.cgroup_used_bytes.value_or(0)));
}

std::optional<std::string> affinity_warning(const WarningFacts& facts) {
  const MachineInfo& m = facts.machine;
  if (m.num_usable_threads >= m.num_threads) return std::nullopt;
  return fmt::format(
      "{} of {} hardware threads are usable here: the optimizer on the host has only these; the "
      "limit comes from taskset, --cpus or --cpuset-cpus of a container, or a batch system",
      m.num_usable_threads, m.num_threads);
}

Staging staging_of(const Device& device, const DeviceOptions& options) {
  return {.pinned_bytes = device.pinned_bytes(),
          .staged_bytes = device.staged_bytes(),
          .limit_bytes = options.profile.pinned_bytes,
          .refused = device.pinning_refused()};
}

std::optional<std::string> staging_warning(const Staging& staging, const MemoryLimits& limits) {
  if (staging.staged_bytes == 0) return std::nullopt;
  const size_t wanted_bytes = staging.pinned_bytes + staging.staged_bytes;
  const std::string said = fmt::format(
      "{} of host memory are pinned; {} are copied through pinned buffers, which is "
      "slower: ",
      format_bytes(staging.pinned_bytes), format_bytes(staging.staged_bytes));
  if (!staging.refused) {
    return said + fmt::format("the limit is --pinned {}, and {} would be enough",
                              format_bytes(staging.limit_bytes), format_bytes(wanted_bytes));
  }
  if (limits.memlock_bytes && *limits.memlock_bytes < wanted_bytes) {
    return said + fmt::format(
                      "the driver refuses to pin more, perhaps because `ulimit -l` is {}: raise "
                      "this limit",
                      format_bytes(*limits.memlock_bytes));
  }
  return said +
         "the driver refuses to pin more, although `ulimit -l` allows it: end other programs that "
         "have pinned or unevictable memory (/proc/meminfo), or use a smaller model";
}

std::vector<std::string> warnings_for(const WarningFacts& facts) {
  std::vector<std::string> warnings;
  for (const auto& warning :
       {cgroup_warning(facts), memlock_warning(facts), huge_page_warning(facts),
        far_memory_warning(facts), affinity_warning(facts)}) {
    if (warning) warnings.push_back(*warning);
  }
  return warnings;
}

}  // namespace ebb
