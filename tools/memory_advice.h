// Which usual sizes of RAM and of GPU memory are enough for a training that does not fit. The
// planner says how much host memory is needed, and RAM is the next usual size; sizes of GPU memory
// are planned with.
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
  std::optional<MemorySize> gpu = {};  ///< nullopt: the present one is enough, or !has_gpu
  std::optional<MemorySize> ram = {};  ///< nullopt: the present RAM is enough; set if !has_gpu
  /// Host memory that all ranks of a machine need then, with that of a host device; 0: `ram` is
  /// nullopt.
  size_t host_bytes = 0;
};

/// Alternatives: enough RAM with the present GPU, and enough GPU memory with the present RAM, as
/// far as there are such sizes. The present memory is the budget of the options, or else that of
/// the machine. If neither is enough alone, one answer: the smallest GPU memory that works with
/// unlimited RAM, and the RAM for it. If the host is the device, one answer: enough RAM for both,
/// unless the device budget of the options is too small. Empty if no usual size is enough, or if
/// the run fits in no device memory even with unlimited RAM. `need`: of need_of().
std::vector<MemoryAnswer> memory_that_fits(const TrainOptions& options, const PlanContext& context,
                                           const MemoryNeed& need);

/// "192 GB of RAM is enough (the run takes 148.06 GiB), with this GPU", or "with a GPU with 48 GB";
/// "a GPU with 48 GB is enough, with this RAM"; for a host device only the first part
std::string memory_text(const MemoryAnswer& answer);

}  // namespace ebb
