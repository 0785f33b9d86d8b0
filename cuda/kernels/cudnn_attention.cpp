#include <limits>
#include <map>

#include "cuda/attention_library.h"
#include "cuda/kernels/cudnn_plan.h"
#include "device/errors.h"

namespace ebb {
namespace {

/// The arguments of a plan: device pointers, and numbers in host memory that the plan reads in the
/// call.
class Arguments {
 public:
  Arguments(const AttentionOperands& f, const AttentionPart& part)
      : f_(f),
        places_(f, part),
        numbers_{f.scale, -std::numeric_limits<float>::infinity(), static_cast<float>(f.window),
                 1.0f} {
    give(CudnnTensor::Queries, f.qkv, places_.queries);
    give(CudnnTensor::Keys, f.qkv, places_.keys);
    give(CudnnTensor::Values, f.qkv, places_.values);
    give(CudnnTensor::Out, f.out, places_.out);
    give(CudnnTensor::LogSumExp, f.log_sum_exp + places_.sums);
    give(CudnnTensor::Scale, &numbers_.scale);
    if (f.causal) give(CudnnTensor::Nothing, &numbers_.nothing);
    if (!f.causal || f.window == 0) return;
    give(CudnnTensor::NothingBefore, &numbers_.nothing);
    give(CudnnTensor::Window, &numbers_.window);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void give_backward() {
    give(CudnnTensor::OutGradient, f_.dout, places_.out);
    give(CudnnTensor::QueryGradients, f_.dqkv, places_.queries);
    give(CudnnTensor::KeyGradients, f_.dqkv, places_.keys);
    give(CudnnTensor::ValueGradients, f_.dqkv, places_.values);
    give(CudnnTensor::Inner, f_.inner);
    give(CudnnTensor::One, &numbers_.one);
  }

  CudnnDescriptor pack(const CudnnLibrary& library, const std::byte* workspace) const {
    CudnnDescriptor pack = create_descriptor(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const auto set = [&](cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                         size_t count, const void* values) {
      check_cudnn(
          library,
          library.SetAttribute(pack.get(), attribute, type, static_cast<int64_t>(count), values),
          "giving attention its arguments");
    };
    set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names_.size(), names_.data());
    set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data_.size(), data_.data());
    set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    check_cudnn(library, library.Finalize(pack.get()), "giving attention its arguments");
    return pack;
  }

 private:
  void give(CudnnTensor name, const void* data) {
    names_.push_back(static_cast<int64_t>(name));
    data_.push_back(data);
  }
  void give(CudnnTensor name, const void* data, int64_t element) {
    const int64_t bytes = element * static_cast<int64_t>(size_of(f_.dtype));
    give(name, static_cast<const std::byte*>(data) + bytes);
  }

  const AttentionOperands& f_;
  const AttentionPlaces places_;
  const struct { float scale, nothing, window, one; } numbers_;
  std::vector<int64_t> names_;
  std::vector<const void*> data_;
};

class CudnnAttentionLibrary final : public AttentionLibrary {
 public:
  CudnnAttentionLibrary() : handle_(make_handle(), cudnn_.Destroy) {}

  bool can_attend(const AttentionOperands& f, size_t workspace_bytes) override {
    return plan_for(forward_of(f), workspace_bytes).has_value();
  }
  bool can_differentiate(const AttentionOperands& f, const AttentionPart& part,
                         size_t workspace_bytes) override {
    return plan_for(backward_of(f, part), workspace_bytes).has_value();
  }
  void forward(cudaStream_t stream, const AttentionOperands& f,
               std::span<std::byte> workspace) override {
    const Arguments arguments(f, {.num_rows = f.batch, .num_kv_heads = f.num_kv_heads});
    execute(stream, forward_of(f), arguments, workspace);
  }
  void backward(cudaStream_t stream, const AttentionOperands& f, const AttentionPart& part,
                std::span<std::byte> workspace) override {
    Arguments arguments(f, part);
    arguments.give_backward();
    execute(stream, backward_of(f, part), arguments, workspace);
  }

 private:
  cudnnHandle_t make_handle() const {
    cudnnHandle_t handle = nullptr;
    try {
      check_cudnn(cudnn_, cudnn_.Create(&handle), "starting");
    } catch (const DeviceError& error) {
      throw ConfigError(std::string(error.what()) + "; use `attention` ebb");
    }
    return handle;
  }

  const std::optional<CudnnPlan>& plan_for(const CudnnAttention& key, size_t most_bytes) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_
        .emplace(key, plan_attention(cudnn_, {.handle = handle_.get()}, key,
                                     static_cast<int64_t>(most_bytes)))
        .first->second;
  }
  void execute(cudaStream_t stream, const CudnnAttention& attention, const Arguments& arguments,
               std::span<std::byte> workspace) {
    const auto& plan = plan_for(attention, workspace.size());
    const CudnnDescriptor pack = arguments.pack(cudnn_, workspace.data());
    check_cudnn(cudnn_, cudnn_.SetStream(handle_.get(), stream), "taking a stream");
    check_cudnn(cudnn_, cudnn_.Execute(handle_.get(), plan->plan.get(), pack.get()),
                "submitting attention");
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
  return std::make_unique<CudnnAttentionLibrary>();
}

}  // namespace ebb
