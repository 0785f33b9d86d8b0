// The two kinds of devices that compute kernels, by the arguments of their member functions
// (device/kernels.h).
#pragma once

#include <cstddef>

#include "device/kernel_arguments.h"
#include "device/stream.h"

namespace ebb {

struct HostLaunch;  // device/host/kernels/host_launch.h
struct GpuLaunch;   // cuda/kernels/gpu_launch.h

}  // namespace ebb
