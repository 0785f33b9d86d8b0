// C = A B on the host: the matrix product of all linear layers.
//
// Each element of C is a chain of additions over k = 0 .. K-1 that starts at zero, followed by the
// bias, by Store or Add, and by one rounding. Blocking and threads only change when a link of the
// chain is computed, not its value, so results do not depend on them. The arithmetic
// (device/arithmetic.h) defines a link: one fused multiply-add for every vector width, or two
// products of bf16 that the processor adds in its own way. Thread-safety: concurrent calls need
// their own team and workspace. Errors: LogicError if the workspace is too small.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/arithmetic.h"
#include "device/dtype.h"
#include "device/kernel_arguments.h"
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
  const void* old = nullptr;  ///< with Write::Add: (m, n) as C, to which AB is added; null: C
  bool read_late = false;     ///< C is not read soon, so it is written past the caches
};

/// The workspace in bytes, the same for every arithmetic. It is bounded for all shapes, because the
/// product is computed in blocks.
size_t gemm_workspace_bytes(const Gemm& gemm, int num_threads);

/// Computes the product. Products of fp32 are chains of fused multiply-adds for every arithmetic.
void run_gemm(const Gemm& gemm, Arithmetic arithmetic, ThreadTeam& team,
              const Workspace& workspace);

}  // namespace ebb
