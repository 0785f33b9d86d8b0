// Forward attention in cuDNN's words: a graph of operations whose inner tensors are never stored,
// in the order in which the library recognises attention, and a plan for it.
//
// The graph is that of NVIDIA's cudnn-frontend (composite SDPA node), made through the library's C
// interface. Nothing here needs a GPU where the plan is for the properties of one. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/kernels/cudnn_library.h"
#include "device/dtype.h"

namespace ebb {

struct CudnnDestroy {
  const CudnnLibrary* library;
  void operator()(void* descriptor) const noexcept { library->DestroyDescriptor(descriptor); }
};
using CudnnDescriptor = std::unique_ptr<void, CudnnDestroy>;

/// What a plan follows from, beside the library and the GPU. The type has 16 bits; out and
/// log-sum-exp are (B, T, NH D) and (B, NH, T), queries, keys and values as AttentionLaunch has
/// them.
struct CudnnAttention {
  DType dtype = DType::BF16;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  bool has_window = false;  ///< how long it is, a plan does not know
  auto operator<=>(const CudnnAttention&) const = default;
};

/// What a call gives to a plan, by these names of the graph's tensors.
enum class CudnnTensor : int64_t {
  Queries = 1,
  Keys,
  Values,
  Out,
  LogSumExp,
  Scale,    ///< a float of the host
  Nothing,  ///< a float of the host: -infinity, the score of a key that is not seen
  Window    ///< a float of the host
};

struct CudnnPlan {
  CudnnDescriptor plan;
  int64_t workspace_bytes = 0;
};

/// What a plan is for: the GPU of a handle, or one that is not there, as a descriptor of
/// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. One of the two.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

/// A descriptor that is not finished. Throws DeviceError.
CudnnDescriptor create_descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);

/// The first plan of the library's own ranking that it supports within `most_workspace_bytes`; none
/// where there is none. Throws DeviceError where the library fails.
std::optional<CudnnPlan> plan_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                        const CudnnAttention& attention,
                                        int64_t most_workspace_bytes);

/// Throws DeviceError with what the library says.
void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* what);

}  // namespace ebb
