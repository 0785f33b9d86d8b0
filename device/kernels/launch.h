// Two kinds of devices run kernels. Each has an argument type for run() and workspace_bytes() of a
// kernel (device/kernels.h).
#pragma once

#include <cstddef>

#include "device/kernel_arguments.h"
#include "device/stream.h"

namespace ebb {

struct HostLaunch;  // device/host/kernels/host_launch.h
struct GpuLaunch;   // cuda/kernels/gpu_launch.h

}  // namespace ebb
