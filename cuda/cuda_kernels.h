// The kernels of the CUDA backend (device/kernels.h). This file submits them; cuda/kernels/,
// cuda/linear.cpp and cuda/attention.cpp have their run() and workspace_bytes(). cuBLASLt computes
// matrix products. cuDNN computes attention if it is loaded.
//
// A kernel that is submitted to a KernelStream launches at once. On a stream of the simulated
// device it is only counted, so that a plan made without a GPU knows the workspace that these
// kernels need. One object serves one compute stream at a time. Results are the same for every
// placement: reduction trees follow from shapes, floating-point atomics are not used, and each
// shape of product has one algorithm.
#pragma once

#include <memory>

#include "cuda/attention_library.h"
#include "cuda/data_error.h"
#include "device/kernels.h"
#include "device/workspace.h"

namespace ebb {

/// `workspace` (device memory, as large as the largest Cost::workspace_bytes of all kernels) and
/// `data_error` (pinned memory) must outlive the kernels. `attention`: null to use our own kernels
/// only. Throws DeviceError if cuBLASLt cannot be started. Allocates host memory now, and a small
/// plan for each new shape of a product or of attention.
std::unique_ptr<Kernels> create_cuda_kernels(const Workspace& workspace, DataError* data_error,
                                             std::unique_ptr<AttentionLibrary> attention);

}  // namespace ebb
