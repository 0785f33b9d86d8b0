// Which usual sizes of RAM and of GPU memory are enough for a training that does not fit. Each size
// is planned for, so the answer is the planner's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/advice.h"
#include "tools/plan_setup.h"

namespace ebb {

/// A usual size of memory, as it is sold.
struct MemorySize {
  int gigabytes = 0;
  size_t usable_bytes = 0;  ///< without what the system or the driver takes
};

/// Memory with which a training fits.
struct MemoryAnswer {
  bool has_gpu = true;                 ///< false: the host is the device
  std::optional<MemorySize> gpu = {};  ///< nullopt: that of the machine
  std::optional<MemorySize> ram = {};  ///< nullopt: that of the machine
  /// Host memory that the training needs then, with that of a host device; 0: not computed.
  size_t host_bytes = 0;
};

/// Enough RAM with the machine's GPU, and enough GPU memory with its RAM, if there are such sizes.
/// If neither is enough alone, the smallest GPU memory that works, and the RAM for it. If the host
/// is the device, enough RAM for both.
std::vector<MemoryAnswer> memory_that_fits(const TrainOptions& options, const PlanContext& context,
                                           const MemoryNeed& need);

/// "192 GB of RAM is enough (the run takes 148.06 GiB), with this GPU"
std::string memory_text(const MemoryAnswer& answer);

}  // namespace ebb
