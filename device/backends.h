// What each backend gives to the rest of Ebb. Callers use create_device(), which calls these.
//
// The CUDA functions are defined in cuda/ where the toolkit was found, and in cuda_stub.cpp
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
/// Throws ConfigError where this build or this machine has no CUDA device to train on.
std::unique_ptr<Device> create_cuda_device(const DeviceOptions& options);

/// The kernels of the host backend. `team` and `workspace` must outlive them; each object serves
/// one compute stream. A kernel checks its arguments, submits one function with Stream::submit, and
/// states its cost, so that the same object serves the simulated device, which runs nothing.
/// REQUIRES: this processor supports `arithmetic`, if the kernels are to run.
std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic);

/// Kernels that only count what those of a CUDA device would take, for plans that are made without
/// one. Null where this build has no CUDA backend. `attention`: cuDNN's may take more workspace.
std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels attention);

}  // namespace ebb
