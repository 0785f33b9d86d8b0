// The seam to the CUDA backend: defined in cuda/ where the toolkit was found, in cuda_stub.cpp
// where not. Callers use create_device(), which calls this. Thread-safe.
#pragma once

#include <memory>

#include "device/device.h"

namespace ebb {

/// Throws ConfigError where this build or this machine has no CUDA device to train on.
std::unique_ptr<Device> create_cuda_device(const DeviceOptions& options);

/// Kernels that only count what those of a CUDA device would take: for plans made without one. Null
/// where this build has no CUDA backend. `attention`: cuDNN's may take more workspace.
std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels attention);

}  // namespace ebb
