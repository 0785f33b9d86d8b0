// The hardware and limits of this machine, for `ebb devices` and the default of --host-memory.
// Functions read from the system, unless they say that they measure.
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
  int num_usable_threads = 0;   ///< hardware threads that this process may use
  std::vector<NumaNode> nodes;
};
MachineInfo read_machine();

/// Measures an in-place pass over `bytes` of newly allocated memory with all usable threads.
/// Returns the sum of bytes read and written per second.
double measure_memory_bandwidth(size_t bytes);

/// Bytes a second between host and device for copies of pinned memory: up, down, and the sum of
/// both directions at once.
struct LinkBandwidth {
  double load_bytes_per_s = 0;
  double store_bytes_per_s = 0;
  double both_bytes_per_s = 0;
};
/// Measures copies of `bytes` in each direction several times. The fastest counts. Throws
/// OutOfMemory.
LinkBandwidth measure_link(Device& device, size_t bytes);

/// The most memory that this process ever had resident, in bytes.
size_t peak_rss_bytes();
/// Returns freed memory to the system and resets the peak, if the system allows it. Called before a
/// run, so that the peak does not include planning and measuring.
void reset_peak_rss();

}  // namespace ebb
