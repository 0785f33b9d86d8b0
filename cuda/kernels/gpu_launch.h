// What the kernels of a GPU work with, and the launches that several kernels share.
//
// The files of this folder, cuda/linear.cpp and cuda/attention.cpp have the GPU's part of the
// kernels (device/kernels.h): their member functions run() and workspace_bytes(). Each run()
// launches on the stream and returns. The caller has checked the arguments. All pointers are to
// memory that the device can read and write. The functions throw DeviceError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/data_error.h"
#include "device/errors.h"
#include "device/kernels.h"
#include "device/workspace.h"

namespace ebb {

class Attention;       // cuda/attention.h
class MatrixProducts;  // cuda/linear.h

/// Without stream, workspace and products, kernels are only counted: workspace_bytes() may be
/// called, and run() may not.
struct GpuLaunch {
  cudaStream_t stream = nullptr;
  const Workspace* workspace = nullptr;
  DataError* data_error = nullptr;  ///< pinned memory for the first wrong index of the data
  MatrixProducts* products = nullptr;
  Attention* attention = nullptr;

  /// The workspace as an array of T. Throws LogicError if it has fewer than `bytes` bytes.
  template <class T>
  T* scratch(size_t bytes) const {
    EBB_CHECK(bytes <= workspace->bytes, "a kernel's workspace was not reserved");
    return reinterpret_cast<T*>(workspace->data);
  }
};

namespace cuda {

/// The ranges that one launch of the AdamW update takes at most.
inline constexpr size_t kRangesAtOnce = 64;

/// The largest number of channels of a head in attention and rotary kernels.
inline constexpr int64_t kLargestHead = 256;
/// Throws LogicError if the heads of this kernel have more channels.
inline void check_head_size(const char* kernel, int64_t size) {
  EBB_CHECK(size <= kLargestHead, std::string(kernel) + ": heads of " + std::to_string(size) +
                                      " channels; the CUDA backend has kernels for up to " +
                                      std::to_string(kLargestHead) +
                                      ", take more heads or `device` host");
}

/// Returns cudaSuccess if this build has code for the current device of this thread. Defined in
/// elementwise.cu.
cudaError_t find_code();

/// sums (C) fp32 = or += sums of the first C columns of x. `partials`: column_sums_floats(x).
/// Defined in norm.cu.
void column_sums(cudaStream_t stream, const Tensor& sums, const Tensor& x, Write write,
                 float* partials);
size_t column_sums_floats(const Tensor& x);

/// Records in the GPU's data error an index that is neither in [0, limit) nor `ignored`. Defined in
/// embedding.cu.
void check_indices(const GpuLaunch& gpu, const Tensor& indices, int64_t limit, int64_t ignored,
                   DataError::Kind kind);

/// Records in `error` a document start that is not valid. Defined in attention.cu, as the next two.
void check_documents(cudaStream_t stream, const AttentionOperands& f, DataError* error);
/// Our own kernels of attention.
void attention_forward(cudaStream_t stream, const AttentionOperands& f);
void attention_backward(cudaStream_t stream, const AttentionOperands& f);

}  // namespace cuda
}  // namespace ebb
