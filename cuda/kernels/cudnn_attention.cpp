#include <limits>
#include <map>

#include "cuda/attention_library.h"
#include "cuda/kernels/cudnn_plan.h"
#include "device/errors.h"

namespace ebb {
namespace {

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// What a graph has words for. Rows of whole vectors begin where the tensors do.
bool can_be_said(const cuda::AttentionLaunch& f) {
  return f.dtype != DType::F32 && f.document_starts == nullptr && f.dropout.probability == 0.0f &&
         f.head_size % 8 == 0 && is_aligned(f.qkv) && is_aligned(f.out) &&
         is_aligned(f.log_sum_exp);
}

CudnnAttention said(const cuda::AttentionLaunch& f) {
  return {f.dtype,        f.batch,     f.num_tokens, f.num_heads,
          f.num_kv_heads, f.head_size, f.causal,     f.causal && f.window > 0};
}

class CudnnForward final : public AttentionLibrary {
 public:
  CudnnForward() : handle_(make_handle(), cudnn_.Destroy) {}

  bool can_attend(const cuda::AttentionLaunch& f) override {
    return can_be_said(f) && plan_for(f).has_value();
  }

  void forward(cudaStream_t stream, const cuda::AttentionLaunch& f, std::byte* workspace) override {
    const Numbers numbers{f.scale, -std::numeric_limits<float>::infinity(),
                          static_cast<float>(f.window)};
    const CudnnDescriptor arguments = arguments_of(f, numbers, workspace);
    check_cudnn(cudnn_, cudnn_.SetStream(handle_.get(), stream), "taking a stream");
    check_cudnn(cudnn_, cudnn_.Execute(handle_.get(), plan_for(f)->plan.get(), arguments.get()),
                "submitting attention");
  }

 private:
  /// What the library reads on the host when it is called.
  struct Numbers {
    float scale, nothing, window;
  };

  cudnnHandle_t make_handle() const {
    cudnnHandle_t handle = nullptr;
    try {
      check_cudnn(cudnn_, cudnn_.Create(&handle), "starting");
    } catch (const DeviceError& error) {
      throw ConfigError(std::string(error.what()) + "; use --attention ebb");
    }
    return handle;
  }

  const std::optional<CudnnPlan>& plan_for(const cuda::AttentionLaunch& f) {
    const CudnnAttention key = said(f);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_
        .emplace(key, plan_attention(cudnn_, {.handle = handle_.get()}, key,
                                     int64_t{kAttentionWorkspaceBytes}))
        .first->second;
  }

  CudnnDescriptor arguments_of(const cuda::AttentionLaunch& f, const Numbers& numbers,
                               std::byte* workspace) const {
    const auto* qkv = static_cast<const std::byte*>(f.qkv);
    const int64_t head_bytes = f.head_size * static_cast<int64_t>(size_of(f.dtype));
    std::vector<int64_t> names;
    std::vector<const void*> data;
    const auto give = [&](CudnnTensor name, const void* argument) {
      names.push_back(static_cast<int64_t>(name));
      data.push_back(argument);
    };
    give(CudnnTensor::Queries, qkv);
    give(CudnnTensor::Keys, qkv + f.num_heads * head_bytes);
    give(CudnnTensor::Values, qkv + (f.num_heads + f.num_kv_heads) * head_bytes);
    give(CudnnTensor::Out, f.out);
    give(CudnnTensor::LogSumExp, f.log_sum_exp);
    give(CudnnTensor::Scale, &numbers.scale);
    if (f.causal) give(CudnnTensor::Nothing, &numbers.nothing);
    if (f.causal && f.window > 0) give(CudnnTensor::Window, &numbers.window);

    CudnnDescriptor pack = create_descriptor(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const auto set = [&](cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                         size_t count, const void* values) {
      check_cudnn(
          cudnn_,
          cudnn_.SetAttribute(pack.get(), attribute, type, static_cast<int64_t>(count), values),
          "giving attention its arguments");
    };
    const void* scratch = workspace;
    set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.size(), names.data());
    set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.size(), data.data());
    set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
    check_cudnn(cudnn_, cudnn_.Finalize(pack.get()), "giving attention its arguments");
    return pack;
  }

  const CudnnLibrary cudnn_;
  const std::unique_ptr<cudnnContext, cudnnStatus_t (*)(cudnnHandle_t)> handle_;
  std::map<CudnnAttention, std::optional<CudnnPlan>> plans_;  // without a value: no kernel
};

}  // namespace

std::string attention_library_name() {
  const CudnnLibrary cudnn;
  return cudnn.is_there() ? cudnn.name() : "";
}

std::unique_ptr<AttentionLibrary> create_attention_library() {
  return std::make_unique<CudnnForward>();
}

}  // namespace ebb
