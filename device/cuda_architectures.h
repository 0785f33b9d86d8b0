// For which GPUs this build has code, as text for users. Thread-safe.
#pragma once

#include <string>

namespace ebb {

/// For example "compiled for sm_80, sm_90; newer GPUs, such as sm_100 and sm_120, ..."; empty if
/// this build has no CUDA backend.
std::string cuda_architectures();

}  // namespace ebb
