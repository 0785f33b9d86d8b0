// The CUDA backend's kernels (device/kernels.h): checks and costs here, launches in cuda/kernels/,
// matrix products through cuBLASLt, attention through cuDNN where that is given.
//
// A call on a KernelStream launches at once; on any other stream (a simulated device's) it is only
// counted, so that a plan made without a GPU knows what these kernels ask of the workspace. One
// object serves one compute stream at a time. Results are the same for every placement: reduction
// trees follow from shapes, no floating-point atomics, one algorithm for each shape of product.
#pragma once

#include <memory>

#include "cuda/attention_library.h"
#include "cuda/data_error.h"
#include "device/kernels.h"
#include "device/workspace.h"

namespace ebb {

/// `workspace` (device memory, as large as the greatest Cost::workspace_bytes of the calls made)
/// and `data_error` (pinned memory) must outlive the kernels. Throws DeviceError where cuBLASLt
/// cannot be started. Allocates here and, for each new shape of a product or of attention, a small
/// plan in host memory. `attention`: null for our own kernels alone.
std::unique_ptr<Kernels> create_cuda_kernels(const Workspace& workspace, DataError* data_error,
                                             std::unique_ptr<AttentionLibrary> attention);

}  // namespace ebb
