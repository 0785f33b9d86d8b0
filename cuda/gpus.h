// Which GPUs are here, and whether Ebb runs on them. Thread-safe: reads only.
#pragma once

#include <string>

namespace ebb {

/// Oldest architecture that kernels are written for: bf16 in hardware.
inline constexpr int kOldestArchitecture = 80;

/// "NVIDIA H200, 139 GiB, sm_90". Throws DeviceError.
std::string describe_gpu(int index);

/// Throws ConfigError where there is no driver or no such GPU, or it is older than
/// kOldestArchitecture, cannot read registered host memory at the host's addresses or map its own,
/// or has no code in this build, or the driver is too old. This thread uses it then.
void check_gpu(int index);

/// Why no GPU can be used: "no CUDA driver on this machine", ...
std::string why_no_gpu();

}  // namespace ebb
