// The functions that each backend provides. Callers use create_device(), which calls these
// functions.
//
// The CUDA functions are defined in cuda/ if the build found the CUDA toolkit, and in cuda_stub.cpp
// otherwise. Thread-safe.
#pragma once

#include <memory>

#include "device/arithmetic.h"
#include "device/device.h"
#include "device/kernels.h"
#include "device/workspace.h"

namespace ebb {

class ThreadTeam;  // system/thread_team.h

std::unique_ptr<Device> create_host_device(const DeviceOptions& options);
std::unique_ptr<Device> create_sim_device(const DeviceOptions& options);
/// Throws ConfigError if this build has no CUDA backend or this machine has no usable CUDA device.
std::unique_ptr<Device> create_cuda_device(const DeviceOptions& options);

/// The kernels of the host backend. `team` and `workspace` must outlive them. Each object serves
/// one compute stream. submit() checks a kernel and submits it as a function together with its cost
/// (Stream::submit). So the same object also serves the simulated device, which does not run the
/// function. REQUIRES: this processor supports `arithmetic`, unless the kernels are only counted.
std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic);

/// Returns kernels that only count the cost and the workspace of the kernels of a CUDA device, for
/// plans that are made without such a device. Returns null if this build has no CUDA backend.
/// `attention`: the kernels of cuDNN may need more workspace.
std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels attention);

}  // namespace ebb
