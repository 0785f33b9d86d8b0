// Linear layers as matrix products, and what stands behind them in the same pass over memory where
// the library has that, else as kernels of our own. Which of the two follows from shapes, types and
// the library, so bits do not change.
//
// Shapes were checked by the caller. Everything is put on the stream; throws DeviceError. Not
// thread-safe, as MatrixProducts.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/linear.h"
#include "device/tensor.h"

namespace ebb {

/// May a product take this activation along? Libraries know GELU's tanh formula, ask for whole
/// vectors of what it is of, and may be coarser than fp32 allows.
bool goes_with_products(Activation activation, const Tensor& before);

class LinearLayers {
 public:
  explicit LinearLayers(std::unique_ptr<MatrixProducts> products);

  /// `workspace`: kProductWorkspaceBytes, of the weight's gradient weight_workspace_bytes().
  void forward(cudaStream_t stream, const Tensor& y, const Tensor& x, const Tensor& w,
               const Tensor& bias, std::byte* workspace);
  /// REQUIRES: as what follows, goes_with_products().
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
