// What of a machine will hurt a run, and what to do about it: pure functions of what was read.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tools/machine.h"

namespace ebb {

/// What the kernel does with memory that asks for large pages, as Ebb's does.
enum class HugePages : uint8_t { Given, Never, Unknown };
/// `setting`: the content of /sys/kernel/mm/transparent_hugepage/enabled, "always [madvise] never".
HugePages parse_huge_pages(std::string_view setting);
HugePages read_huge_pages();

/// A display controller of NVIDIA's on the PCI bus, with or without a driver.
struct GpuPlace {
  std::string address;           ///< "0000:17:00.0"
  std::optional<unsigned> node;  ///< nullopt where the machine does not say
};
/// From a folder like /sys/bus/pci/devices, in order of address.
std::vector<GpuPlace> read_gpu_places(const std::filesystem::path& folder);

struct WarningFacts {
  MachineInfo machine = {};
  MemoryLimits limits = {};
  HugePages huge_pages = HugePages::Unknown;
  std::vector<GpuPlace> gpus = {};
};
WarningFacts read_warning_facts();

// A sentence each, with what to try; nullopt where there is nothing to say.
/// Host memory that a GPU copies from is pinned; of it no more may be than this limit.
std::optional<std::string> memlock_warning(const WarningFacts& facts);
/// Memory on another node than a GPU is reached over the link between processors.
std::optional<std::string> far_memory_warning(const WarningFacts& facts);
std::optional<std::string> huge_page_warning(const WarningFacts& facts);
std::optional<std::string> cgroup_warning(const WarningFacts& facts);
/// Fewer hardware threads than the machine has.
std::optional<std::string> affinity_warning(const WarningFacts& facts);

/// What a device did with the home that its copies touch.
struct Staging {
  size_t pinned_bytes = 0, staged_bytes = 0;
  size_t limit_bytes = SIZE_MAX;  ///< --pinned
  bool refused = false;           ///< by the driver, below that limit
};
Staging staging_of(const Device& device, const DeviceOptions& options);
/// Copies of what is not pinned go at the speed of a core: who is to let more be.
std::optional<std::string> staging_warning(const Staging& staging, const MemoryLimits& limits);

/// All of them, the worst first.
std::vector<std::string> warnings_for(const WarningFacts& facts);

}  // namespace ebb
