// The checks of the arguments of kernels (device/kernels.h) that all backends share. Each check
// returns the cost of the call that does not depend on the backend: floating-point operations,
// bytes and name. Each backend adds its own workspace.
//
// Pure functions. They throw LogicError if shapes or types violate the contract.
#pragma once

#include "device/kernels.h"

namespace ebb {

/// The bytes of all tensors: the memory traffic of a kernel that accesses each tensor once.
template <class... Tensors>
double total_bytes(const Tensors&... tensors) {
  return (0.0 + ... + (tensors ? static_cast<double>(tensors.bytes()) : 0.0));
}

/// Whether both have the same type and the same numbers of rows and columns.
inline bool same_matrix(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.rows() == b.rows() && a.columns() == b.columns();
}

/// Whether t is a vector of n elements of this type, like biases, statistics and indices.
inline bool is_vector(const Tensor& t, DType type, int64_t n) {
  return t && t.dtype == type && t.num_elements() == n;
}

Cost check_linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias);
Cost check_linear_activation_forward(const Tensor& y, const Tensor& before, const Tensor& x,
                                     const Tensor& w, const Tensor& bias);
Cost check_linear_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w);
Cost check_activation_linear_backward(const Tensor& dbefore, const Tensor& dy, const Tensor& w,
                                      const Tensor& before);
Cost check_linear_backward_weight(const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                                  const Tensor& x);

Cost check_layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd,
                              const Tensor& x, const Tensor& w, const Tensor& b);
Cost check_layer_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db,
                               const Tensor& dy, const Tensor& x, const Tensor& w,
                               const Tensor& mean, const Tensor& rstd);

Cost check_rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w);
Cost check_rms_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x,
                             const Tensor& w, const Tensor& rstd);
Cost check_head_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& wq,
                             const Tensor& wk, HeadCounts heads);
Cost check_head_norm_backward(const Tensor& gradient, const Tensor& dwq, const Tensor& dwk,
                              const Tensor& x, const Tensor& wq, const Tensor& wk,
                              const Tensor& rstd, HeadCounts heads);

Cost check_rotary_table(const Tensor& table, const Tensor& positions,
                        std::span<const double> frequencies);
Cost check_rotary(const Tensor& x, const Tensor& table, int64_t num_heads);
Cost check_swiglu_forward(const Tensor& y, const Tensor& x);
Cost check_swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);

Cost check_activation_forward(const Tensor& y, const Tensor& x);
Cost check_activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);
Cost check_add(const Tensor& y, const Tensor& a, const Tensor& b);
Cost check_accumulate(const Tensor& y, const Tensor& x);
Cost check_dropout(const Tensor& x, const Dropout& dropout);

Cost check_embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& positions,
                             const Tensor& wte, const Tensor& wpe);
Cost check_embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& indices,
                              Write write);

Cost check_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                         bool with_gradient);
Cost check_cross_entropy_statistics(const Tensor& losses, const Tensor& statistics,
                                    const Tensor& logits, const Tensor& targets, ClassSlice slice);
Cost check_cross_entropy_gradient(const Tensor& logits, const Tensor& statistics,
                                  const Tensor& targets, ClassSlice slice);
Cost check_sum(const Tensor& total, const Tensor& values);

Cost check_finish_gradient(const Tensor& gradient, const Tensor& sums, const Tensor& more_sums,
                           const Tensor& partials);
Cost check_squared_norm_pieces(const Tensor& partials, const Tensor& gradient);
Cost check_adamw(const Planes& planes, int64_t n, const AdamWCoefficients* coefficients);

}  // namespace ebb
