// The hardware and limits of this machine, for `ebb devices` and the default of --host-memory.
// Functions read from the system, unless their comment says that they measure. Where the system
// does not tell a value, it is 0 or "unknown".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device.h"
#include "system/core_set.h"
#include "system/memory_limits.h"

namespace ebb {

struct NumaNode {
  unsigned index = 0;
  size_t memory_bytes = 0;
  int num_cores = 0;
};

struct MachineInfo {
  std::string cpu;
  std::string instruction_set;  ///< the best that the kernels can choose: "AVX-512", "AVX2", ...
  int num_cores = 0;            ///< physical cores
  int num_threads = 0;          ///< hardware threads
  int num_usable_threads = 0;   ///< hardware threads that this process may use
  std::vector<NumaNode> nodes;
};
/// Throws LogicError if hwloc cannot read the machine.
MachineInfo read_machine();
/// The cores of each NUMA node.
std::vector<CoreSet> cores_of_nodes();

/// Measures how fast all usable threads together change `bytes` bytes of newly allocated memory in
/// place. Returns bytes per second, where each byte counts twice: it is read and written.
double measure_memory_bandwidth(size_t bytes);

/// Bandwidths of copies between pinned memory and the device.
struct LinkBandwidth {
  double load_bytes_per_s = 0;   ///< from host to device alone
  double store_bytes_per_s = 0;  ///< from device to host alone
  double both_bytes_per_s = 0;   ///< the sum of both directions at the same time
};
/// Measures copies of `bytes` bytes in each direction several times, and returns the fastest.
/// Throws OutOfMemory if the device or the limit of pinned memory has too little room.
LinkBandwidth measure_link(Device& device, size_t bytes);

/// The most memory that this process ever had resident, in bytes.
size_t peak_rss_bytes();
/// Returns freed memory to the system and resets the peak. Does nothing if the system does not
/// allow it. Called before a run, so that the peak does not include planning and measuring.
void reset_peak_rss();

}  // namespace ebb
