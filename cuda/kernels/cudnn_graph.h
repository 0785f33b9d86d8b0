// Attention in cuDNN's words: a graph of operations whose inner tensors are never stored, in the
// order in which the library recognises attention. The graphs are those of NVIDIA's cudnn-frontend
// (composite SDPA nodes).
#pragma once

#include "cuda/kernels/cudnn_plan.h"

namespace ebb {

/// Throws CudnnUnsupported where the library has no words for it, DeviceError where it fails.
CudnnDescriptor describe_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                   const CudnnAttention& attention);

}  // namespace ebb
