#include "device/kernels/linear.h"

#include <algorithm>
#include <string_view>

#include "device/kernels/checks.h"

namespace ebb {
namespace {

double product_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

Cost product_cost(double flops, const Tensor& weight, double bytes, std::string_view name) {
  const bool narrow = std::min(weight.dim(0), weight.dim(1)) < kNarrow;
  return {.flops = flops, .narrow_flops = narrow ? flops : 0, .bytes = bytes, .name = name};
}

/// The cost of a product and of the activation in the same kernel, which adds `bytes` of traffic.
Cost cost_with_activation(const Cost& product, double activation_flops, double bytes,
                          std::string_view name) {
  Cost cost = product;
  cost.flops += activation_flops;
  cost.vector_flops = activation_flops;
  cost.bytes += bytes;
  cost.name = name;
  return cost;
}

/// Has the tensor `width` columns and possibly padding?
bool has_columns(const Tensor& tensor, int64_t width) {
  const int64_t padding = tensor.columns() - width;
  return padding >= 0 && padding < kMostPadding;
}

}  // namespace

Cost LinearForward::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && y.dtype == x.dtype && w.dtype == x.dtype,
                    "linear_forward: y, x and w must be of one float type", y, x, w);
  EBB_CHECK_TENSORS(w.shape.rank() == 2 && x.columns() == w.dim(1) && has_columns(y, w.dim(0)) &&
                        y.rows() == x.rows(),
                    "linear_forward: y (N, OC) = x (N, C) w (OC, C)^T", y, x, w);
  EBB_CHECK_TENSORS(!bias || is_vector(bias, x.dtype, w.dim(0)), "linear_forward: bias (OC)", bias,
                    w);
  EBB_CHECK_TENSORS(!residual || (residual.dtype == y.dtype && residual.rows() == y.rows() &&
                                  residual.columns() == w.dim(0) && y.columns() == w.dim(0)),
                    "linear_forward: residual (N, OC) of the type of y, which has no padding",
                    residual, y, w);
  return product_cost(product_flops(x.rows(), w.dim(0), w.dim(1)), w,
                      total_bytes(y, x, w, bias, residual), "linear_forward");
}

Cost LinearBackwardInput::check() const {
  EBB_CHECK_TENSORS(
      is_float(dy.dtype) && w.dtype == dy.dtype && (dx.dtype == dy.dtype || dx.dtype == DType::F32),
      "linear_backward_input: dy and w must be of one float type, dx of it or fp32", dx, dy, w);
  EBB_CHECK_TENSORS(w.shape.rank() == 2 && dx.columns() == w.dim(1) && has_columns(dy, w.dim(0)) &&
                        dx.rows() == dy.rows(),
                    "linear_backward_input: dx (N, C) = dy (N, OC) w (OC, C)", dx, dy, w);
  return product_cost(product_flops(dy.rows(), w.dim(1), w.dim(0)), w, total_bytes(dx, dy, w),
                      "linear_backward_input");
}

Cost ActivationLinearBackward::check() const {
  const auto parts = split();
  return cost_with_activation(parts.first.check(), parts.second.check().flops, total_bytes(before),
                              "activation_linear_backward");
}

std::pair<LinearBackwardInput, ActivationBackward> ActivationLinearBackward::split() const {
  return {{dbefore, dy, w, Write::Store}, {dbefore, dbefore, before, activation, Write::Store}};
}

Cost LinearBackwardWeight::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && dy.dtype == x.dtype && dw.dtype == DType::F32,
                    "linear_backward_weight: dy and x of one float type, dw fp32", dw, dy, x);
  EBB_CHECK_TENSORS(dw.shape.rank() == 2 && has_columns(dy, dw.dim(0)) &&
                        x.columns() == dw.dim(1) && dy.rows() == x.rows(),
                    "linear_backward_weight: dw (OC, C) = dy (N, OC)^T x (N, C)", dw, dy, x);
  EBB_CHECK_TENSORS(!dbias || is_vector(dbias, DType::F32, dw.dim(0)),
                    "linear_backward_weight: dbias (OC) fp32", dbias, dw);
  return product_cost(product_flops(dw.dim(0), dw.dim(1), x.rows()), dw,
                      total_bytes(dw, dbias, dy, x), "linear_backward_weight");
}

}  // namespace ebb
