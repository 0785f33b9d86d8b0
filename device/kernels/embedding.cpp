#include "device/kernels/embedding.h"

#include <algorithm>

#include "device/kernels/checks.h"

namespace ebb {

Cost EmbeddingForward::check() const {
  const int64_t n = y.rows(), c = y.columns();
  EBB_CHECK_TENSORS(is_float(y.dtype) && wte.dtype == y.dtype && wte.columns() == c,
                    "embedding_forward: y (N, C) and wte (V, C) of one float type", y, wte);
  EBB_CHECK_TENSORS(is_vector(tokens, DType::I32, n), "embedding_forward: tokens (N) int32", tokens,
                    y);
  EBB_CHECK_TENSORS(static_cast<bool>(wpe) == static_cast<bool>(positions),
                    "embedding_forward: positions and wpe come together", positions, wpe);
  EBB_CHECK_TENSORS(
      !wpe || (wpe.dtype == y.dtype && wpe.columns() == c && is_vector(positions, DType::I32, n)),
      "embedding_forward: wpe (P, C) of y's type, positions (N) int32", wpe, positions, y);
  return {.flops = wpe ? count(y) : 0.0,
          .bytes = total_bytes(y, tokens, positions, y) + (wpe ? total_bytes(y) : 0.0),
          .name = "embedding_forward"};
}

Cost EmbeddingBackward::check() const {
  const int64_t n = dy.rows(), c = dy.columns();
  EBB_CHECK_TENSORS(is_float(dy.dtype) && dtable.dtype == DType::F32 && dtable.columns() == c,
                    "embedding_backward: dtable (V, C) fp32, dy (N, C) of a float type", dtable,
                    dy);
  EBB_CHECK_TENSORS(is_vector(indices, DType::I32, n), "embedding_backward: indices (N) int32",
                    indices, dy);
  EBB_CHECK_TENSORS(n <= INT32_MAX, "embedding_backward: dy of fewer than 2^31 rows", dy);
  const auto rows_written =
      static_cast<double>(write == Write::Store ? dtable.rows() : std::min(n, dtable.rows()));
  return {.flops = count(dy),
          .bytes = total_bytes(dy, indices) + rows_written * static_cast<double>(c) * 4.0,
          .name = "embedding_backward"};
}

}  // namespace ebb
