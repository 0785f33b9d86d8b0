// Fills in a descriptor of cuDNN.
#pragma once

#include <array>
#include <type_traits>

#include "cuda/kernels/cudnn_plan.h"

namespace ebb {

/// Thrown if the library has no such kernel or cannot compile it. This is not an error: the caller
/// tries the next kernel or uses our own. Conditions that can change between runs, for example free
/// memory, are errors, because bits must not depend on them.
struct CudnnUnsupported {};

template <class T>
constexpr cudnnBackendAttributeType_t cudnn_type_of() {
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  }
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  return CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

/// A descriptor under construction: set() attributes, then finish(). Both throw CudnnUnsupported or
/// DeviceError.
class CudnnDescription {
 public:
  CudnnDescription(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
      : library_(library), made_(create_descriptor(library, type)) {}

  template <class T>
  CudnnDescription& set(cudnnBackendAttributeName_t name, const T* values, size_t count) {
    check(library_.SetAttribute(made_.get(), name, cudnn_type_of<T>(), static_cast<int64_t>(count),
                                values));
    return *this;
  }
  template <class T>
  CudnnDescription& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, &value, 1);
  }
  template <size_t kCount>
  CudnnDescription& set(cudnnBackendAttributeName_t name, const std::array<int64_t, kCount>& v) {
    return set(name, v.data(), v.size());
  }
  CudnnDescriptor finish() {
    check(library_.Finalize(made_.get()));
    return std::move(made_);
  }

 private:
  void check(cudnnStatus_t status) const {
    if ((status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR) ||
        status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED) {
      throw CudnnUnsupported();
    }
    check_cudnn(library_, status, "describing attention");
  }

  const CudnnLibrary& library_;
  CudnnDescriptor made_;
};

}  // namespace ebb
