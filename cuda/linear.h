// Matrix products on the device, as column-major libraries see them: the seam to cuBLASLt, which
// the tests' emulation replaces by plain loops.
//
// fp32 sums, no TF32. One algorithm for each shape, alignment and library, the first that the
// library's own ranking names among those without atomics: the same bits whenever and wherever it
// runs. What stands behind a product can be done with it where the library has an algorithm for
// both. Not thread-safe: one object serves one compute stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/dtype.h"
#include "device/kernels.h"

namespace ebb {

/// A matrix with columns one after the other, `stride` elements apart.
struct ColumnMajor {
  const void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;  ///< it is the other way round in memory
};

/// What becomes of a number on its way to d. GELU is the tanh formula, of fp32.
enum class Epilogue : uint8_t {
  None,
  Gelu,       ///< the number is rounded to `before`, its GELU to d
  GeluSlope,  ///< times GELU's slope at `before`
};

/// d (m, n) = or += a (m, k) b (k, n), + bias (m) for each column.
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::F32;    ///< of a, b and bias
  DType d_dtype = DType::F32;  ///< dtype, or fp32
  ColumnMajor a = {}, b = {};
  void* d = nullptr;  ///< columns m elements apart
  Write write = Write::Store;
  const void* bias = nullptr;          ///< null: none; with Write::Store
  Epilogue epilogue = Epilogue::None;  ///< with Write::Store, of 16-bit types
  void* before = nullptr;              ///< of d_dtype, columns m elements apart
  float* b_sums = nullptr;  ///< (n) = sums of b over k, stored; null: not wanted. With no bias
};

class MatrixProducts {
 public:
  virtual ~MatrixProducts() = default;
  /// Whether the library does all of this at once. It follows from what an algorithm follows from,
  /// and may be false only where an epilogue or sums of b are asked for.
  [[nodiscard]] virtual bool can_multiply(const MatrixProduct& product) = 0;
  /// Submits a product of at least one number, with k > 0. `workspace`: kProductWorkspaceBytes on
  /// the device. Throws DeviceError.
  virtual void multiply(cudaStream_t stream, const MatrixProduct& product,
                        std::byte* workspace) = 0;
};

/// What every product may use: a fixed size, since the choice of an algorithm depends on it.
inline constexpr size_t kProductWorkspaceBytes = size_t{32} << 20;

/// Throws DeviceError where the library cannot be started.
std::unique_ptr<MatrixProducts> create_matrix_products();

}  // namespace ebb
