// C = A B on the host: the one matrix product behind every linear layer.
//
// Each element of C is one chain over k = 0 .. K-1 that starts at zero, then bias, then Store or
// Add, then one rounding. Blocking and threads decide when a link of the chain is computed, never
// its value, so results are the same for all of them. What a link is, the arithmetic says
// (device/arithmetic.h): one fused multiply-add, whatever the vector width, or two products of bf16
// that the processor adds in its own way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/arithmetic.h"
#include "device/dtype.h"
#include "device/kernels.h"
#include "device/workspace.h"
#include "system/thread_team.h"

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
  bool read_late = false;  ///< C goes past the caches to memory: nobody reads it soon
};

/// Bounded whatever the shape: the product is worked off in blocks.
/// The same for every arithmetic.
size_t gemm_workspace_bytes(const Gemm& gemm, int num_threads);

/// Products of fp32 are chains of fused multiply-adds whatever the arithmetic.
void run_gemm(const Gemm& gemm, Arithmetic arithmetic, ThreadTeam& team,
              const Workspace& workspace);

}  // namespace ebb
