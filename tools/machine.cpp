#include "tools/machine.h"

#include <hwloc.h>
#include <hwy/targets.h>
#include <malloc.h>

#include <fstream>
#include <memory>
#include <type_traits>

#include "device/errors.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw LogicError("hwloc cannot be initialised");
  Topology owner(topology);
  if (hwloc_topology_load(topology) != 0) throw LogicError("hwloc cannot read the machine");
  return owner;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string best_instruction_set() {
  // Only compiled targets count, because a newer Highway may know more.
  const auto supported = static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  const std::string best =
      hwy::TargetName(static_cast<int64_t>(supported & (~supported + 1)));  // the lowest bit
  // Highway's names of AVX-512 are AVX3, AVX3_DL, AVX3_ZEN4 and AVX3_SPR.
  return best.starts_with("AVX3") ? "AVX-512" + best.substr(4) : best;
}

std::vector<NumaNode> numa_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    nodes.push_back(
        {node->os_index, static_cast<size_t>(node->attr->numanode.local_memory),
         hwloc_get_nbobjs_inside_cpuset_by_type(topology, node->cpuset, HWLOC_OBJ_CORE)});
  }
  return nodes;
}

/// A field of a /proc file in KiB, converted to bytes; 0 if the field is missing.
size_t kib_field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

}  // namespace

MachineInfo read_machine() {
  const Topology topology = load_topology();
  MachineInfo info;
  info.cpu = cpu_name();
  info.instruction_set = best_instruction_set();
  info.num_cores = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  info.num_threads = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU);
  info.num_usable_threads = num_usable_cores();
  info.nodes = numa_nodes(topology.get());
  return info;
}

std::vector<CoreSet> cores_of_nodes() {
  const Topology topology = load_topology();
  std::vector<CoreSet> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    CoreSet& cores = nodes.emplace_back();
    for (int core = hwloc_bitmap_first(node->cpuset); core >= 0;
         core = hwloc_bitmap_next(node->cpuset, core)) {
      if (static_cast<size_t>(core) < cores.size()) cores.set(static_cast<size_t>(core));
    }
  }
  return nodes;
}

void reset_peak_rss() {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

// getrusage() would also count the parent process, because exec() keeps its peak.
size_t peak_rss_bytes() { return kib_field("/proc/self/status", "VmHWM:"); }

}  // namespace ebb
