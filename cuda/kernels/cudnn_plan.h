// cuDNN's execution plans for attention, made with its C interface. A plan for the described
// properties of a GPU needs no GPU. Not thread-safe.
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

/// The properties on which a plan depends, in addition to the library and the GPU. The heads are
/// those of one call; a token's row may have more. The type has 16 bits; log-sum-exp is (B, NH, T).
struct CudnnAttention {
  DType dtype = DType::BF16;
  int64_t batch = 0, num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_size = 0;
  bool causal = true;
  bool has_window = false;  ///< a plan does not depend on the length of the window
  bool backward = false;
  int64_t qkv_columns = 0, out_columns = 0;  ///< of a token's row
  auto operator<=>(const CudnnAttention&) const = default;
};

CudnnAttention forward_of(const AttentionOperands& f);
CudnnAttention backward_of(const AttentionOperands& f, const AttentionPart& part);

/// The tensors of the graph that a call passes to a plan.
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
  Inner,  ///< AttentionOperands::inner
  // Floats in host memory.
  Scale,
  Nothing,        ///< -infinity, the score of a key after the query
  NothingBefore,  ///< -infinity, the score of a key before the window
  Window,
  One
};

struct CudnnPlan {
  CudnnDescriptor plan;
  int64_t workspace_bytes = 0;
};

/// The GPU for which a plan is made: the GPU of a handle, or a GPU that need not exist, as a
/// descriptor CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. Exactly one of the two is set.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

/// Creates a descriptor whose attributes are not set yet. Throws DeviceError.
CudnnDescriptor create_descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);

/// The first supported plan of the library's own ranking that needs at most `most_workspace_bytes`;
/// nullopt if there is none. Throws DeviceError if the library fails.
std::optional<CudnnPlan> plan_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                        const CudnnAttention& attention,
                                        int64_t most_workspace_bytes);

/// Throws DeviceError with the library's message if `status` is an error. `what`: the purpose of
/// the call.
void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* what);

}  // namespace ebb
