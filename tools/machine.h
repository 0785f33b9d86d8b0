// What this machine has and allows: for `ebb devices` and for the default of --host-memory. Reads
// of the system, and measurements that say so.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device.h"
#include "system/memory_limits.h"

namespace ebb {

struct NumaNode {
  unsigned index = 0;
  size_t memory_bytes = 0;
  int num_cores = 0;
};

struct MachineInfo {
  std::string cpu;
  std::string instruction_set;  ///< the best that the kernels can choose: "AVX3", "AVX2", ...
  int num_cores = 0;            ///< physical
  int num_threads = 0;          ///< hardware threads
  int num_usable_threads = 0;   ///< of them, by this process (parallel.h)
  std::vector<NumaNode> nodes;
};
MachineInfo read_machine();

/// Bytes a second of an in-place pass over `bytes` of fresh memory: read plus written, all usable
/// threads.
double measure_memory_bandwidth(size_t bytes);

/// Bytes a second between host and device: of copies of pinned memory up, down, and of both at
/// once, added.
struct LinkBandwidth {
  double load_bytes_per_s = 0;
  double store_bytes_per_s = 0;
  double both_bytes_per_s = 0;
};
/// Copies `bytes` each way some times; the best counts. Throws OutOfMemory.
LinkBandwidth measure_link(Device& device, size_t bytes);

/// Most memory this process ever had resident, in bytes.
size_t peak_rss_bytes();
/// Gives back what was freed, and lets the peak begin anew where the system allows it: before a
/// run, what planning and measuring took is not the run's.
void reset_peak_rss();

}  // namespace ebb
