// Matrix products on the device, as column-major libraries see them: the seam to cuBLASLt, which
// the tests' emulation replaces by plain loops.
//
// fp32 sums, no TF32. One algorithm for each shape, alignment and library, the first that the
// library's own ranking names among those without atomics: the same bits whenever and wherever it
// runs. Not thread-safe: one object serves one compute stream.
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

/// d (m, n) = or += a (m, k) b (k, n), + bias (m) for each column.
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::F32;    ///< of a, b and bias
  DType d_dtype = DType::F32;  ///< dtype, or fp32
  ColumnMajor a = {}, b = {};
  void* d = nullptr;  ///< columns m elements apart
  Write write = Write::Store;
  const void* bias = nullptr;  ///< null: none; with Write::Store
};

class MatrixProducts {
 public:
  virtual ~MatrixProducts() = default;
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
