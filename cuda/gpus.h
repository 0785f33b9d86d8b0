// Finds the GPUs of this machine and checks whether Ebb runs on them. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

/// The oldest supported architecture: the kernels need bf16 in hardware.
inline constexpr int kOldestArchitecture = 80;

/// Name, memory and architecture of a GPU, for example "NVIDIA H200, 139 GiB, sm_90". Throws
/// DeviceError.
std::string describe_gpu(int index);

/// Checks a GPU and makes it current in this thread. Throws ConfigError if there is no driver, the
/// driver is too old or the GPU does not exist; if the GPU is older than kOldestArchitecture,
/// cannot read registered host memory at the host's addresses or cannot map its memory at reserved
/// addresses; or if this build has no code for the GPU.
void check_gpu(int index);

/// For which GPUs kernels are compiled. `built`: entries of CMAKE_CUDA_ARCHITECTURES, with spaces
/// between them. `runtime_version`: of the toolkit, 13000 for 13.0.
std::string architectures_text(std::string_view built, int runtime_version);

/// The reason why no GPU can be used, for example "no CUDA driver on this machine".
std::string why_no_gpu();

}  // namespace ebb
