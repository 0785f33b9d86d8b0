// Linear layers as matrix products. Bias, GELU and the bias's gradient are computed in the same
// pass over memory if the library can do so, and otherwise by our own kernels. The choice follows
// from shapes, types and the library only, so bits do not change.
//
// The caller has checked the shapes. Every method submits kernels to `stream` and throws
// DeviceError. Not thread-safe, as MatrixProducts.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/linear.h"
#include "device/tensor.h"

namespace ebb {

/// Can a product compute this activation in the same call? Only if it is GELU with the tanh
/// formula, the type has 16 bits (libraries may be too inexact for fp32), and the number of columns
/// of `before` is a multiple of 8.
bool goes_with_products(Activation activation, const Tensor& before);

class LinearLayers {
 public:
  explicit LinearLayers(std::unique_ptr<MatrixProducts> products);

  /// y = x w^T + bias. `workspace`: kProductWorkspaceBytes; for backward_weight(),
  /// weight_workspace_bytes().
  void forward(cudaStream_t stream, const Tensor& y, const Tensor& x, const Tensor& w,
               const Tensor& bias, std::byte* workspace);
  /// before = x w^T + bias, y = GELU(before). REQUIRES, like backward_input_with_gelu():
  /// goes_with_products().
  void forward_with_gelu(cudaStream_t stream, const Tensor& y, const Tensor& before,
                         const Tensor& x, const Tensor& w, const Tensor& bias,
                         std::byte* workspace);
  void backward_input(cudaStream_t stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                      Write write, std::byte* workspace);
  void backward_input_with_gelu(cudaStream_t stream, const Tensor& dbefore, const Tensor& dy,
                                const Tensor& w, const Tensor& before, std::byte* workspace);
  void backward_weight(cudaStream_t stream, const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                       const Tensor& x, Write write, std::byte* workspace);
  static size_t weight_workspace_bytes(const Tensor& dbias, const Tensor& dy);

 private:
  bool can_multiply(const MatrixProduct& product);
  void multiply(cudaStream_t stream, const MatrixProduct& product, std::byte* workspace);

  const std::unique_ptr<MatrixProducts> products_;
};

}  // namespace ebb
