// Warnings about settings of the machine that slow a run down, with a remedy. Pure functions.
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

/// What the operating system does with memory for which Ebb requests huge pages.
enum class HugePages : uint8_t { Given, Never, Unknown };
/// `setting`: the content of /sys/kernel/mm/transparent_hugepage/enabled, "always [madvise] never".
HugePages parse_huge_pages(std::string_view setting);
HugePages read_huge_pages();

/// An NVIDIA display controller on the PCI bus, with or without a driver.
struct GpuPlace {
  std::string address;           ///< "0000:17:00.0"
  std::optional<unsigned> node;  ///< nullopt: the machine does not report it
};
/// Reads a folder like /sys/bus/pci/devices, in order of address.
std::vector<GpuPlace> read_gpu_places(const std::filesystem::path& folder);

struct WarningFacts {
  MachineInfo machine = {};
  MemoryLimits limits = {};
  HugePages huge_pages = HugePages::Unknown;
  std::vector<GpuPlace> gpus = {};
};
WarningFacts read_warning_facts();

// Each function returns one sentence with a remedy, or nullopt if there is nothing to warn about.
/// The memlock limit may be smaller than the memory that a run pins for copies.
std::optional<std::string> memlock_warning(const WarningFacts& facts);
/// A GPU reaches memory of another node over the link between processors.
std::optional<std::string> far_memory_warning(const WarningFacts& facts);
std::optional<std::string> huge_page_warning(const WarningFacts& facts);
std::optional<std::string> cgroup_warning(const WarningFacts& facts);
/// The process may use fewer hardware threads than the machine has.
std::optional<std::string> affinity_warning(const WarningFacts& facts);

/// The host memory of a device for copies, and how much of this memory is pinned.
struct Staging {
  size_t pinned_bytes = 0, staged_bytes = 0;
  size_t limit_bytes = SIZE_MAX;  ///< --pinned
  bool refused = false;           ///< the driver refused to pin up to that limit
};
Staging staging_of(const Device& device, const DeviceOptions& options);
/// Copies of memory that is not pinned are as slow as one core. The warning names the limit to
/// raise.
std::optional<std::string> staging_warning(const Staging& staging, const MemoryLimits& limits);

/// All warnings, the most important first.
std::vector<std::string> warnings_for(const WarningFacts& facts);

}  // namespace ebb
