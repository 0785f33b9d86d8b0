#include "device/kernel_checks.h"

#include <algorithm>
#include <string>

namespace ebb {
namespace {

double product_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// The cost of work outside of matrix products and attention.
Cost vector_cost(double flops, double bytes, std::string_view name) {
  return {.flops = flops, .vector_flops = flops, .bytes = bytes, .name = name};
}

double count(const Tensor& t) { return static_cast<double>(t.num_elements()); }

bool alike(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.num_elements() == b.num_elements();
}

bool has_all_pieces(const Tensor& partials, int64_t num_elements) {
  return is_vector(partials, DType::F64, (num_elements + kPieceElements - 1) / kPieceElements);
}

void check_slice(const Tensor& statistics, const Tensor& logits, const Tensor& targets,
                 ClassSlice slice) {
  const int64_t n = logits.rows(), width = logits.columns();
  EBB_CHECK(is_float(logits.dtype), "cross_entropy: logits must be of a float type");
  EBB_CHECK(statistics.rows() == n && statistics.columns() == 3 && statistics.dtype == DType::F32 &&
                is_vector(targets, DType::I32, n),
            "cross_entropy: statistics (N, 3) fp32, targets (N) int32");
  EBB_CHECK(slice.first >= 0 && slice.first + width <= slice.num_classes,
            "cross_entropy: classes " + std::to_string(slice.first) + " to " +
                std::to_string(slice.first + width) + " of " + std::to_string(slice.num_classes));
}

void check_whole_rows(const Tensor& x, const Tensor& w, const Tensor& rstd, const char* kernel) {
  EBB_CHECK(is_float(x.dtype) && is_vector(w, x.dtype, x.columns()) &&
                is_vector(rstd, DType::F32, x.rows()),
            std::string(kernel) + ": x (N, C) of a float type, w (C) of the same, rstd (N) fp32");
}

/// Returns the number of elements of the heads.
double check_heads(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                   const HeadCounts& heads, const char* kernel) {
  const int64_t n = x.rows(), width = wq.num_elements(), normed = heads.queries + heads.keys;
  EBB_CHECK(heads.queries > 0 && heads.keys > 0 &&
                x.columns() == (heads.queries + 2 * heads.keys) * width,
            std::string(kernel) + ": x (N, (NH + 2 NKV) D) and wq (D)");
  EBB_CHECK(is_float(x.dtype) && is_vector(wq, x.dtype, width) && is_vector(wk, x.dtype, width),
            std::string(kernel) + ": x of a float type, wq, wk (D) of the same");
  EBB_CHECK(is_vector(rstd, DType::F32, n * normed),
            std::string(kernel) + ": rstd (N, NH + NKV) fp32");
  return static_cast<double>(n * normed * width);
}

void check_swiglu(const Tensor& x, const Tensor& y, const char* kernel) {
  EBB_CHECK(is_float(x.dtype) && y.dtype == x.dtype && y.rows() == x.rows() &&
                x.columns() == 2 * y.columns(),
            std::string(kernel) + ": x (N, 2F) and y (N, F) of one float type");
}

}  // namespace

Cost check_linear_forward(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  EBB_CHECK(is_float(x.dtype) && y.dtype == x.dtype && w.dtype == x.dtype,
            "linear_forward: y, x and w must be of one float type");
  EBB_CHECK(w.shape.rank() == 2 && x.columns() == w.dim(1) && y.columns() == w.dim(0) &&
                y.rows() == x.rows(),
            "linear_forward: y (N, OC) = x (N, C) w (OC, C)^T");
  EBB_CHECK(!bias || is_vector(bias, x.dtype, w.dim(0)), "linear_forward: bias (OC)");
  return {.flops = product_flops(x.rows(), w.dim(0), w.dim(1)),
          .bytes = total_bytes(y, x, w, bias),
          .name = "linear_forward"};
}

Cost check_linear_activation_forward(const Tensor& y, const Tensor& before, const Tensor& x,
                                     const Tensor& w, const Tensor& bias) {
  const Cost linear = check_linear_forward(before, x, w, bias);
  const Cost activation = check_activation_forward(y, before);
  return {.flops = linear.flops + activation.flops,
          .vector_flops = activation.flops,
          .bytes = linear.bytes + total_bytes(y),
          .name = "linear_activation_forward"};
}

Cost check_linear_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  EBB_CHECK(
      is_float(dy.dtype) && w.dtype == dy.dtype && (dx.dtype == dy.dtype || dx.dtype == DType::F32),
      "linear_backward_input: dy and w must be of one float type, dx of it or fp32");
  EBB_CHECK(w.shape.rank() == 2 && dx.columns() == w.dim(1) && dy.columns() == w.dim(0) &&
                dx.rows() == dy.rows(),
            "linear_backward_input: dx (N, C) = dy (N, OC) w (OC, C)");
  return {.flops = product_flops(dy.rows(), w.dim(1), w.dim(0)),
          .bytes = total_bytes(dx, dy, w),
          .name = "linear_backward_input"};
}

Cost check_activation_linear_backward(const Tensor& dbefore, const Tensor& dy, const Tensor& w,
                                      const Tensor& before) {
  const Cost linear = check_linear_backward_input(dbefore, dy, w);
  const Cost activation = check_activation_backward(dbefore, dbefore, before);
  return {.flops = linear.flops + activation.flops,
          .vector_flops = activation.flops,
          .bytes = linear.bytes + total_bytes(before),
          .name = "activation_linear_backward"};
}

Cost check_linear_backward_weight(const Tensor& dw, const Tensor& dbias, const Tensor& dy,
                                  const Tensor& x) {
  EBB_CHECK(is_float(x.dtype) && dy.dtype == x.dtype && dw.dtype == DType::F32,
            "linear_backward_weight: dy and x of one float type, dw fp32");
  EBB_CHECK(dw.shape.rank() == 2 && dy.columns() == dw.dim(0) && x.columns() == dw.dim(1) &&
                dy.rows() == x.rows(),
            "linear_backward_weight: dw (OC, C) = dy (N, OC)^T x (N, C)");
  EBB_CHECK(!dbias || is_vector(dbias, DType::F32, dw.dim(0)),
            "linear_backward_weight: dbias (OC) fp32");
  return {.flops = product_flops(dw.dim(0), dw.dim(1), x.rows()),
          .bytes = total_bytes(dw, dbias, dy, x),
          .name = "linear_backward_weight"};
}

Cost check_layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd,
                              const Tensor& x, const Tensor& w, const Tensor& b) {
  const int64_t n = x.rows(), c = x.columns();
  EBB_CHECK(is_float(x.dtype) && y.dtype == x.dtype && y.rows() == n && y.columns() == c,
            "layer_norm_forward: y and x (N, C) of one float type");
  EBB_CHECK(is_vector(w, x.dtype, c) && is_vector(b, x.dtype, c),
            "layer_norm_forward: w, b (C) of x's type");
  EBB_CHECK(is_vector(mean, DType::F32, n) && is_vector(rstd, DType::F32, n),
            "layer_norm_forward: mean, rstd (N) fp32");
  return vector_cost(8.0 * count(x), total_bytes(y, mean, rstd, x, w, b), "layer_norm_forward");
}

Cost check_layer_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db,
                               const Tensor& dy, const Tensor& x, const Tensor& w,
                               const Tensor& mean, const Tensor& rstd) {
  const int64_t n = x.rows(), c = x.columns();
  EBB_CHECK(is_float(x.dtype) && dx.dtype == x.dtype && dy.dtype == x.dtype,
            "layer_norm_backward: dx, dy and x must be of one float type");
  EBB_CHECK(dx.rows() == n && dy.rows() == n && dx.columns() == c && dy.columns() == c,
            "layer_norm_backward: dx, dy and x (N, C)");
  EBB_CHECK(is_vector(w, x.dtype, c), "layer_norm_backward: w (C) of x's type");
  EBB_CHECK(is_vector(dw, DType::F32, c) && is_vector(db, DType::F32, c),
            "layer_norm_backward: dw, db (C) fp32");
  EBB_CHECK(is_vector(mean, DType::F32, n) && is_vector(rstd, DType::F32, n),
            "layer_norm_backward: mean, rstd (N) fp32");
  return vector_cost(16.0 * count(x), total_bytes(dx, dw, db, dy, x, w, mean, rstd),
                     "layer_norm_backward");
}

Cost check_rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w) {
  check_whole_rows(x, w, rstd, "rms_norm_forward");
  EBB_CHECK(same_matrix(y, x), "rms_norm_forward: y must look like x");
  return vector_cost(5.0 * count(x), total_bytes(y, rstd, x, w), "rms_norm_forward");
}

Cost check_rms_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dy, const Tensor& x,
                             const Tensor& w, const Tensor& rstd) {
  check_whole_rows(x, w, rstd, "rms_norm_backward");
  EBB_CHECK(same_matrix(dx, x) && same_matrix(dy, x),
            "rms_norm_backward: dx and dy must look like x");
  EBB_CHECK(is_vector(dw, DType::F32, x.columns()), "rms_norm_backward: dw (C) fp32");
  return vector_cost(12.0 * count(x), total_bytes(dx, dw, dy, x, w, rstd), "rms_norm_backward");
}

Cost check_head_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& wq,
                             const Tensor& wk, HeadCounts heads) {
  const double elements = check_heads(x, wq, wk, rstd, heads, "head_norm_forward");
  EBB_CHECK(same_matrix(y, x), "head_norm_forward: y must look like x");
  return vector_cost(5.0 * elements, total_bytes(y, rstd, x, wq, wk), "head_norm_forward");
}

Cost check_head_norm_backward(const Tensor& gradient, const Tensor& dwq, const Tensor& dwk,
                              const Tensor& x, const Tensor& wq, const Tensor& wk,
                              const Tensor& rstd, HeadCounts heads) {
  const double elements = check_heads(x, wq, wk, rstd, heads, "head_norm_backward");
  EBB_CHECK(same_matrix(gradient, x), "head_norm_backward: gradient must look like x");
  EBB_CHECK(is_vector(dwq, DType::F32, wq.num_elements()) &&
                is_vector(dwk, DType::F32, wq.num_elements()),
            "head_norm_backward: dwq, dwk (D) fp32");
  const double touched = elements * static_cast<double>(size_of(x.dtype));
  return vector_cost(12.0 * elements, 3 * touched + total_bytes(dwq, dwk, wq, wk, rstd),
                     "head_norm_backward");
}

Cost check_rotary_table(const Tensor& table, const Tensor& positions,
                        std::span<const double> frequencies) {
  EBB_CHECK(!frequencies.empty() && table.dtype == DType::F32 &&
                table.columns() == 2 * static_cast<int64_t>(frequencies.size()),
            "rotary_table: table (N, D) fp32 and D / 2 frequencies");
  EBB_CHECK(is_vector(positions, DType::I32, table.rows()), "rotary_table: positions (N) int32");
  // A sine in fp64 takes some 40 operations of ordinary code.
  return vector_cost(40.0 * count(table), total_bytes(table, positions), "rotary_table");
}

Cost check_rotary(const Tensor& x, const Tensor& table, int64_t num_heads) {
  const int64_t n = x.rows(), width = table.columns();
  EBB_CHECK(is_float(x.dtype) && table.dtype == DType::F32 && table.rows() == n && width % 2 == 0,
            "rotary: x (N, C) of a float type, table (N, D) fp32 with D even");
  EBB_CHECK(num_heads > 0 && num_heads * width <= x.columns(),
            "rotary: x has fewer columns than heads of D");
  const double elements = static_cast<double>(n * num_heads * width);
  return vector_cost(3.0 * elements,
                     2.0 * elements * static_cast<double>(size_of(x.dtype)) + total_bytes(table),
                     "rotary");
}

Cost check_swiglu_forward(const Tensor& y, const Tensor& x) {
  check_swiglu(x, y, "swiglu_forward");
  return vector_cost(20.0 * count(y), total_bytes(y, x), "swiglu_forward");
}

Cost check_swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  check_swiglu(x, dy, "swiglu_backward");
  EBB_CHECK(same_matrix(dx, x), "swiglu_backward: dx must look like x");
  return vector_cost(28.0 * count(dy), total_bytes(dx, dy, x), "swiglu_backward");
}

Cost check_activation_forward(const Tensor& y, const Tensor& x) {
  EBB_CHECK(is_float(x.dtype) && alike(y, x),
            "activation_forward: y and x of one float type and size");
  return vector_cost(20.0 * count(x), total_bytes(y, x), "activation_forward");
}

Cost check_activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  EBB_CHECK(is_float(x.dtype) && alike(dx, x) && alike(dy, x),
            "activation_backward: dx, dy and x of one float type and size");
  return vector_cost(30.0 * count(x), total_bytes(dx, dy, x), "activation_backward");
}

Cost check_add(const Tensor& y, const Tensor& a, const Tensor& b) {
  EBB_CHECK(is_float(y.dtype) && alike(y, a) && alike(y, b),
            "add: y, a and b of one float type and size");
  return {.flops = count(y), .bytes = total_bytes(y, a, b), .name = "add"};
}

Cost check_accumulate(const Tensor& y, const Tensor& x) {
  EBB_CHECK(is_float(y.dtype) && is_float(x.dtype) && y.num_elements() == x.num_elements(),
            "accumulate: y and x of float types and one size");
  return {.flops = count(y), .bytes = total_bytes(y, y, x), .name = "accumulate"};
}

Cost check_dropout(const Tensor& x, const Dropout& dropout) {
  EBB_CHECK(is_float(x.dtype) && x.shape.rank() >= 1 && x.dim(0) > 0 &&
                x.num_elements() / x.dim(0) <= int64_t{4} << 32,
            "dropout: x (B, ...) of a float type, at most 2^34 numbers a row");
  EBB_CHECK(dropout.probability > 0 && dropout.probability < 1,
            "dropout: a probability above 0 and below 1");
  // Ten rounds of two products and four other operations make four words.
  return vector_cost(15 * count(x), total_bytes(x, x), "dropout");
}

Cost check_embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& positions,
                             const Tensor& wte, const Tensor& wpe) {
  const int64_t n = y.rows(), c = y.columns();
  EBB_CHECK(is_float(y.dtype) && wte.dtype == y.dtype && wte.columns() == c,
            "embedding_forward: y (N, C) and wte (V, C) of one float type");
  EBB_CHECK(is_vector(tokens, DType::I32, n), "embedding_forward: tokens (N) int32");
  EBB_CHECK(static_cast<bool>(wpe) == static_cast<bool>(positions),
            "embedding_forward: positions and wpe come together");
  EBB_CHECK(
      !wpe || (wpe.dtype == y.dtype && wpe.columns() == c && is_vector(positions, DType::I32, n)),
      "embedding_forward: wpe (P, C) of y's type, positions (N) int32");
  return {.flops = wpe ? count(y) : 0.0,
          .bytes = total_bytes(y, tokens, positions, y) + (wpe ? total_bytes(y) : 0.0),
          .name = "embedding_forward"};
}

Cost check_embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& indices,
                              Write write) {
  const int64_t n = dy.rows(), c = dy.columns();
  EBB_CHECK(is_float(dy.dtype) && dtable.dtype == DType::F32 && dtable.columns() == c,
            "embedding_backward: dtable (V, C) fp32, dy (N, C) of a float type");
  EBB_CHECK(is_vector(indices, DType::I32, n), "embedding_backward: indices (N) int32");
  EBB_CHECK(n <= INT32_MAX, "embedding_backward: more than 2^31 rows");
  const auto rows_written =
      static_cast<double>(write == Write::Store ? dtable.rows() : std::min(n, dtable.rows()));
  return {.flops = count(dy),
          .bytes = total_bytes(dy, indices) + rows_written * static_cast<double>(c) * 4.0,
          .name = "embedding_backward"};
}

Cost check_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                         bool with_gradient) {
  const int64_t n = logits.rows();
  EBB_CHECK(is_float(logits.dtype), "cross_entropy: logits must be of a float type");
  EBB_CHECK(is_vector(losses, DType::F32, n) && is_vector(targets, DType::I32, n),
            "cross_entropy: losses (N) fp32, targets (N) int32");
  const double passes = with_gradient ? 2.0 : 1.0;
  return vector_cost(10.0 * passes * count(logits),
                     total_bytes(losses, targets) + passes * total_bytes(logits), "cross_entropy");
}

Cost check_cross_entropy_statistics(const Tensor& losses, const Tensor& statistics,
                                    const Tensor& logits, const Tensor& targets, ClassSlice slice) {
  check_slice(statistics, logits, targets, slice);
  EBB_CHECK(is_vector(losses, DType::F32, logits.rows()), "cross_entropy: losses (N) fp32");
  const bool is_last = slice.first + logits.columns() == slice.num_classes;
  return {.flops = 10.0 * count(logits),
          .bytes = total_bytes(is_last ? losses : Tensor{}, statistics, logits, targets),
          .name = "cross_entropy_statistics"};
}

Cost check_cross_entropy_gradient(const Tensor& logits, const Tensor& statistics,
                                  const Tensor& targets, ClassSlice slice) {
  check_slice(statistics, logits, targets, slice);
  return {.flops = 10.0 * count(logits),
          .bytes = total_bytes(statistics, logits, logits, targets),
          .name = "cross_entropy_gradient"};
}

Cost check_sum(const Tensor& total, const Tensor& values) {
  EBB_CHECK(is_vector(total, DType::F64, 1) && values.dtype == DType::F32,
            "sum: total (1) fp64, values (N) fp32");
  return {.flops = count(values), .bytes = total_bytes(total, values), .name = "sum"};
}

Cost check_finish_gradient(const Tensor& gradient, const Tensor& sums, const Tensor& more_sums,
                           const Tensor& partials) {
  const int64_t n = gradient.num_elements();
  EBB_CHECK(is_float(gradient.dtype) && is_vector(sums, DType::F32, n) &&
                (!more_sums || is_vector(more_sums, DType::F32, n)),
            "round_gradient: gradient (n) of a float type, sums (n) fp32");
  EBB_CHECK(!partials || has_all_pieces(partials, n),
            "round_gradient: one fp64 partial for each piece of the gradient, or none");
  return {.flops = partials ? 2.0 * static_cast<double>(n) : 0.0,
          .bytes = total_bytes(gradient, sums, more_sums, partials),
          .name = "round_gradient"};
}

Cost check_squared_norm_pieces(const Tensor& partials, const Tensor& gradient) {
  EBB_CHECK(is_float(gradient.dtype) && has_all_pieces(partials, gradient.num_elements()),
            "squared_norm_pieces: one fp64 partial for each piece of the gradient");
  return {.flops = 2.0 * count(gradient),
          .bytes = total_bytes(partials, gradient),
          .name = "squared_norm_pieces"};
}

Cost check_adamw(const Planes& planes, int64_t n, const AdamWCoefficients* coefficients) {
  check_planes(planes, all_planes(planes.weight_dtype));
  EBB_CHECK(is_float(planes.gradient_dtype) && planes.gradient && coefficients && n >= 0,
            "adamw: gradient fp32, bf16 or fp16, coefficients");
  const auto elements = static_cast<double>(n);
  return {
      .flops = 14 * elements,
      .bytes = update_bytes_per_parameter(planes.weight_dtype, planes.gradient_dtype) * elements,
      .name = "adamw"};
}

}  // namespace ebb
