// Plans of cuDNN's for attention, made through its C interface. Nothing here needs a GPU where the
// plan is for the properties of one. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/attention_library.h"
#include "cuda/kernels/cudnn_library.h"
#include "device/dtype.h"

namespace ebb {

struct CudnnDestroy {
  const CudnnLibrary* library;
  void operator()(void* descriptor) const noexcept { library->DestroyDescriptor(descriptor); }
};
using CudnnDescriptor = std::unique_ptr<void, CudnnDestroy>;

/// What a plan follows from, beside the library and the GPU: a call's heads, where a token's row
/// may have more. The type has 16 bits; log-sum-exp is (B, NH, T).
struct CudnnAttention {
  DType dtype = DType::BF16;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  bool has_window = false;  ///< how long it is, a plan does not know
  bool backward = false;
  int64_t qkv_columns = 0, out_columns = 0;  ///< of a token's row
  auto operator<=>(const CudnnAttention&) const = default;
};

CudnnAttention forward_of(const cuda::AttentionLaunch& f);
CudnnAttention backward_of(const cuda::AttentionLaunch& f, const AttentionPart& part);

/// What a call gives to a plan, by these names of the graph's tensors.
enum class CudnnTensor : int64_t {
  Queries = 1,
  Keys,
  Values,
  Out,
  LogSumExp,
  OutGradient,
  QueryGradients,
  KeyGradients,
  ValueGradients,
  Inner,  ///< as AttentionLaunch has it
  // Floats of the host.
  Scale,
  Nothing,        ///< -infinity, the score of a key that is not seen: one behind the query,
  NothingBefore,  ///< and one before the window
  Window,
  One
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
