// The interface to a library for matrix products (cuBLASLt), with column-major matrices as in that
// library. Tests on the emulated GPU replace the library by plain loops.
//
// Sums are fp32, without TF32. Products with the same shape, strides, types, alignment (up to
// 16 bytes), write mode and epilogue have one algorithm: the first without atomics in the library's
// own ranking. So the bits are the same in every run. An epilogue
// (a bias, GELU, a sum) is computed together with the product if the library has an algorithm for
// both. Not thread-safe: one object serves one compute stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/dtype.h"
#include "device/kernel_arguments.h"

namespace ebb {

/// A matrix in memory, column-major; its columns are `stride` elements apart. With `transposed`,
/// the product uses its transpose.
struct ColumnMajor {
  const void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

/// What is applied to an element before it is stored in d. GELU is the tanh formula, in fp32. (GELU
/// itself is not: its bits would depend on whether the value is recomputed from the rounded
/// product.)
enum class Epilogue : uint8_t {
  None,
  GeluSlope,  ///< multiplies the element by GELU's slope at `before`
};

/// d (m, n) = a (m, k) b (k, n). The bias (m), if there is one, is added to each column. Write::Add
/// also adds the old matrix.
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::F32;    ///< of a, b and bias
  DType d_dtype = DType::F32;  ///< dtype, or fp32
  ColumnMajor a = {}, b = {};
  void* d = nullptr;
  int64_t d_stride = 0;  ///< columns of d are so many elements apart, at least m
  Write write = Write::Store;
  const void* old = nullptr;   ///< only with Write::Add, without b_sums; type and stride of d
  const void* bias = nullptr;  ///< null: none
  Epilogue epilogue = Epilogue::None;  ///< only with Write::Store and 16-bit types
  /// Read by GeluSlope. Type d_dtype; columns are m elements apart.
  void* before = nullptr;
  float* b_sums =
      nullptr;  ///< (n) = sums of b over k; null: not requested; only without bias and epilogue

  /// The matrix that Write::Add adds.
  const void* added() const { return old != nullptr ? old : d; }
};

class MatrixProducts {
 public:
  virtual ~MatrixProducts() = default;
  /// Can the library compute the product with its epilogue and sums in one call, and is the
  /// epilogue not slower than a kernel of our own? The answer depends on the product, except its
  /// addresses, on their alignment up to 16 bytes, on the library, and on the architecture.
  /// Products of sizes that are multiples of 8, with no epilogue, no sums of b and no `old`, can
  /// always be computed.
  [[nodiscard]] virtual bool can_multiply(const MatrixProduct& product) = 0;
  /// Submits a product. REQUIRES: m, n and k > 0. `workspace`: kProductWorkspaceBytes on the
  /// device. Throws DeviceError, also if can_multiply(product) is false.
  virtual void multiply(cudaStream_t stream, const MatrixProduct& product,
                        std::byte* workspace) = 0;
};

/// Workspace of every product. The size is fixed, because the choice of an algorithm depends on it.
inline constexpr size_t kProductWorkspaceBytes = size_t{32} << 20;

/// Throws DeviceError if the library cannot be started.
std::unique_ptr<MatrixProducts> create_matrix_products();

/// Is the slope of GELU faster together with a product, in cuBLASLt's kernel, than in our own
/// kernel after the product? Where nobody has measured it, it is computed after the product.
struct GeluWithProducts {
  int architecture;  ///< 90 for sm_90
  bool is_faster;
};
inline constexpr GeluWithProducts kGeluWithProducts[] = {
    {89, false},   // cuBLASLt runs a second, slower kernel (karpathy/llm.c, pull requests 338, 653)
    {90, true},    // one kernel (llm.c, pull request 591)
    {120, false},  // 20 % slower (sgl-project/sglang, pull request 34350)
};
constexpr bool gelu_is_faster_with_products(int architecture) {
  for (const GeluWithProducts& row : kGeluWithProducts) {
    if (row.architecture == architecture) return row.is_faster;
  }
  return false;
}

/// May a product compute this activation in the same call? Only if it is GELU with the tanh
/// formula, the type has 16 bits (libraries may be too inexact for fp32), and the number of columns
/// of `before` is a multiple of 8. If it may, can_multiply() decides.
bool goes_with_products(Activation activation, const Tensor& before);

}  // namespace ebb
