#include "device/kernels/norm.h"

#include <string>

#include "device/kernels/checks.h"

namespace ebb {
namespace {

void check_whole_rows(const Tensor& x, const Tensor& w, const Tensor& rstd, const char* kernel) {
  EBB_CHECK_TENSORS(
      is_float(x.dtype) && is_vector(w, x.dtype, x.columns()) &&
          is_vector(rstd, DType::F32, x.rows()),
      std::string(kernel) + ": x (N, C) of a float type, w (C) of the same, rstd (N) fp32", x, w,
      rstd);
}

/// Returns the number of elements of the heads.
double check_heads(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                   const HeadCounts& heads, const char* kernel) {
  const int64_t n = x.rows(), width = wq.num_elements(), normed = heads.queries + heads.keys;
  EBB_CHECK_TENSORS(heads.queries > 0 && heads.keys > 0 &&
                        x.columns() == (heads.queries + 2 * heads.keys) * width,
                    std::string(kernel) + ": x (N, (NH + 2 NKV) D) and wq (D) with NH " +
                        std::to_string(heads.queries) + " and NKV " + std::to_string(heads.keys),
                    x, wq);
  EBB_CHECK_TENSORS(
      is_float(x.dtype) && is_vector(wq, x.dtype, width) && is_vector(wk, x.dtype, width),
      std::string(kernel) + ": x of a float type, wq, wk (D) of the same", x, wq, wk);
  EBB_CHECK_TENSORS(is_vector(rstd, DType::F32, n * normed),
                    std::string(kernel) + ": rstd (N, NH + NKV) fp32", rstd, x);
  return static_cast<double>(n * normed * width);
}

}  // namespace

Cost LayerNormForward::check() const {
  const int64_t n = x.rows(), c = x.columns();
  EBB_CHECK_TENSORS(is_float(x.dtype) && same_matrix(y, x),
                    "layer_norm_forward: y and x (N, C) of one float type", y, x);
  EBB_CHECK_TENSORS(is_vector(w, x.dtype, c) && is_vector(b, x.dtype, c),
                    "layer_norm_forward: w, b (C) of x's type", w, b, x);
  EBB_CHECK_TENSORS(is_vector(mean, DType::F32, n) && is_vector(rstd, DType::F32, n),
                    "layer_norm_forward: mean, rstd (N) fp32", mean, rstd, x);
  return vector_cost(8.0 * count(x), total_bytes(y, mean, rstd, x, w, b), "layer_norm_forward");
}

Cost LayerNormBackward::check() const {
  const int64_t n = x.rows(), c = x.columns();
  EBB_CHECK_TENSORS(is_float(x.dtype) && same_matrix(dx, x) && same_matrix(dy, x),
                    "layer_norm_backward: dx, dy and x (N, C) of one float type", dx, dy, x);
  EBB_CHECK_TENSORS(is_vector(w, x.dtype, c), "layer_norm_backward: w (C) of x's type", w, x);
  EBB_CHECK_TENSORS(is_vector(dw, DType::F32, c) && is_vector(db, DType::F32, c),
                    "layer_norm_backward: dw, db (C) fp32", dw, db, x);
  EBB_CHECK_TENSORS(is_vector(mean, DType::F32, n) && is_vector(rstd, DType::F32, n),
                    "layer_norm_backward: mean, rstd (N) fp32", mean, rstd, x);
  return vector_cost(16.0 * count(x), total_bytes(dx, dw, db, dy, x, w, mean, rstd),
                     "layer_norm_backward");
}

Cost RmsNormForward::check() const {
  check_whole_rows(x, w, rstd, "rms_norm_forward");
  EBB_CHECK_TENSORS(same_matrix(y, x), "rms_norm_forward: y must look like x", y, x);
  return vector_cost(5.0 * count(x), total_bytes(y, rstd, x, w), "rms_norm_forward");
}

Cost RmsNormBackward::check() const {
  check_whole_rows(x, w, rstd, "rms_norm_backward");
  EBB_CHECK_TENSORS(same_matrix(dx, x) && same_matrix(dy, x),
                    "rms_norm_backward: dx and dy must look like x", dx, dy, x);
  EBB_CHECK_TENSORS(is_vector(dw, DType::F32, x.columns()), "rms_norm_backward: dw (C) fp32", dw,
                    x);
  return vector_cost(12.0 * count(x), total_bytes(dx, dw, dy, x, w, rstd), "rms_norm_backward");
}

Cost HeadNormForward::check() const {
  const double elements = check_heads(x, wq, wk, rstd, heads, "head_norm_forward");
  EBB_CHECK_TENSORS(same_matrix(y, x), "head_norm_forward: y must look like x", y, x);
  return vector_cost(5.0 * elements, total_bytes(y, rstd, x, wq, wk), "head_norm_forward");
}

Cost HeadNormBackward::check() const {
  const double elements = check_heads(x, wq, wk, rstd, heads, "head_norm_backward");
  EBB_CHECK_TENSORS(same_matrix(gradient, x), "head_norm_backward: gradient must look like x",
                    gradient, x);
  EBB_CHECK_TENSORS(is_vector(dwq, DType::F32, wq.num_elements()) &&
                        is_vector(dwk, DType::F32, wq.num_elements()),
                    "head_norm_backward: dwq, dwk (D) fp32", dwq, dwk, wq);
  const double touched = elements * static_cast<double>(size_of(x.dtype));
  return vector_cost(12.0 * elements, 3 * touched + total_bytes(dwq, dwk, wq, wk, rstd),
                     "head_norm_backward");
}

}  // namespace ebb
