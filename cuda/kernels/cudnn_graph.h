// Attention as a graph of cuDNN operations. Inner tensors of the graph are never stored. The
// operations have the order in which the library recognises attention: the graphs are those of
// NVIDIA's cudnn-frontend (composite SDPA nodes).
#pragma once

#include "cuda/kernels/cudnn_plan.h"

namespace ebb {

/// Makes the graph of one forward or backward. Throws CudnnUnsupported if the library cannot
/// express it, DeviceError if a call fails.
CudnnDescriptor describe_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                   const CudnnAttention& attention);

}  // namespace ebb
