#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "device/cuda_architectures.h"
#include "device/device.h"
#include "device/errors.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/device_warnings.h"
#include "tools/machine.h"
#include "tools/option_flags.h"

namespace ebb {
namespace {

std::string limit_text(const std::optional<size_t>& limit) {
  return limit ? format_bytes(*limit) : "unlimited";
}

void print_cpu(const MachineInfo& machine) {
  fmt::print("CPU           {}\n", machine.cpu);
  fmt::print("cores         {} cores, {} hardware threads, {} usable here\n", machine.num_cores,
             machine.num_threads, machine.num_usable_threads);
  fmt::print("instructions  {}\n", machine.instruction_set);
  for (const NumaNode& node : machine.nodes) {
    fmt::print("NUMA node {:<3} {}, {} cores\n", node.index, format_bytes(node.memory_bytes),
               node.num_cores);
  }
}

// Larger than most last-level caches, small enough to be quick on memory that was never touched.
constexpr size_t kBandwidthBytes = size_t{512} << 20;

std::string_view name_of(HugePages pages) {
  switch (pages) {
    case HugePages::Given:
      return "if requested";
    case HugePages::Never:
      return "never";
    case HugePages::Unknown:
      break;
  }
  return "unknown";
}

void print_memory(const WarningFacts& facts) {
  const MemoryLimits& limits = facts.limits;
  fmt::print("memory        {}, {} available\n", format_bytes(limits.total_bytes),
             format_bytes(limits.available_bytes));
  fmt::print("cgroup limit  {}\n", limit_text(limits.cgroup_limit_bytes));
  fmt::print("memlock limit {}\n", limit_text(limits.memlock_bytes));
  fmt::print("huge pages    {}\n", name_of(facts.huge_pages));
  const size_t bytes = std::min(kBandwidthBytes, limits.usable_bytes() / 4);
  fmt::print("bandwidth     {:.1f} GB/s (read and written in place, all usable threads)\n",
             measure_memory_bandwidth(bytes) / 1e9);
}

constexpr size_t kLinkBytes = size_t{256} << 20;

/// The measured rates, or why there are none: another process may use the GPU's memory.
std::string link_text(int gpu) {
  try {
    const auto device = create_device({.profile = {.kind = DeviceKind::Cuda}, .cuda_index = gpu});
    const LinkBandwidth link = measure_link(*device, kLinkBytes);
    return fmt::format("{:.1f} GB/s up, {:.1f} GB/s down, both at once {:.1f} GB/s",
                       link.load_bytes_per_s / 1e9, link.store_bytes_per_s / 1e9,
                       link.both_bytes_per_s / 1e9);
  } catch (const std::exception& error) {
    return "not measured: " + with_flags(error.what());
  }
}

void print_gpus(const CudaProbe& probe, const WarningFacts& facts) {
  for (const GpuPlace& gpu : facts.gpus) {
    fmt::print("GPU           at {}, NUMA node {}\n", gpu.address,
               gpu.node ? fmt::to_string(*gpu.node) : "unknown");
  }
  for (size_t i = 0; i < probe.devices.size(); ++i) {
    fmt::print("CUDA {:<8} {}\n", i, probe.devices[i]);
    fmt::print("  link        {}\n", link_text(static_cast<int>(i)));
  }
  if (!probe.attention_library.empty()) {
    fmt::print("attention     {}\n", probe.attention_library);
  }
  if (const std::string text = cuda_architectures(); !text.empty()) {
    fmt::print("kernels       {}\n", text);
  }
  if (probe.devices.empty()) fmt::print("CUDA          none: {}\n", with_flags(probe.note));
}

}  // namespace

int devices_command(std::vector<std::string> arguments) {
  CommandLine line("Shows the CPU, NUMA nodes, memory, limits and GPUs of this machine.",
                   "ebb devices");
  if (!parse_arguments(line, std::move(arguments), false)) return 0;
  const WarningFacts facts = read_warning_facts();
  print_cpu(facts.machine);
  print_memory(facts);
  print_gpus(probe_cuda(), facts);
  for (const std::string& warning : warnings_for(facts)) fmt::print("warning       {}\n", warning);
  return 0;
}

}  // namespace ebb
