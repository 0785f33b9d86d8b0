// C = A B on the host: the one matrix product behind every linear layer.
//
// Each element of C is one chain of fused multiply-adds over k = 0 .. K-1 that starts at zero, then
// bias, then Store or Add, then one rounding. Blocking, threads and vector width decide when a link
// of the chain is computed, never its value, so results are the same for all of them (fused
// multiply-add given).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/host/host_kernels.h"

namespace ebb {

/// A matrix in memory; one of the two strides (in elements) is 1.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::F32;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  GemmOperand a;      ///< (m, k)
  GemmOperand b;      ///< (k, n)
  void* c = nullptr;  ///< (m, n), rows contiguous
  DType c_dtype = DType::F32;
  const void* bias = nullptr;  ///< (n) of the type of b, or null
  Write write = Write::Store;
};

/// Bounded whatever the shape: the product is worked off in blocks.
size_t gemm_workspace_bytes(const Gemm& gemm, int num_threads);

void run_gemm(const Gemm& gemm, ThreadTeam& team, const Workspace& workspace);

}  // namespace ebb
