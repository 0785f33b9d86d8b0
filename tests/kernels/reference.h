// Kernels as plain fp64 loops, written from their definitions: what the real ones are compared
// with.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/harness.h"

namespace ebb::test {

/// y (n, oc) = x (n, c) w (oc, c)^T + bias (oc, or empty)
Values linear(const Values& x, const Values& w, const Values& bias, int64_t n, int64_t c,
              int64_t oc);
/// a (m, k) b (k, n)
Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n);
Values transpose(const Values& a, int64_t rows, int64_t columns);
Values column_sums(const Values& a, int64_t rows, int64_t columns);

struct Norm {
  Values y, mean, rstd;
};
Norm layer_norm(const Values& x, const Values& w, const Values& b, int64_t n, int64_t c,
                double epsilon);
struct NormGradient {
  Values dx, dw, db;
  Values dx_scale, dw_scale, db_scale;  // sums of absolute terms
};
NormGradient layer_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                 int64_t c, double epsilon);

struct RmsNorm {
  Values y, rstd;
};
/// Rows of c; one weight (c).
RmsNorm rms_norm(const Values& x, const Values& w, int64_t n, int64_t c, double epsilon);
struct RmsNormGradient {
  Values dx, dw;
  Values dx_scale, dw_scale;  // sums of absolute terms
};
RmsNormGradient rms_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                  int64_t c, double epsilon);

/// The first `heads` heads of x (n, columns) turned by angles (n, width / 2), and multiplied.
Values rotate(const Values& x, const Values& angles, int64_t n, int64_t columns, int64_t heads,
              int64_t width, double factor);

double silu(double x);
double silu_slope(double x);
/// x (n, 2 f) -> (n, f)
Values swiglu(const Values& x, int64_t n, int64_t f);

double gelu(double x);
double gelu_slope(double x);
double exact_gelu(double x);
double exact_gelu_slope(double x);

/// Which keys query i of row b may see.
struct AttentionCase {
  int64_t batch, tokens, heads, head_size;
  bool causal;
  std::vector<int32_t> starts;  // empty: rows are documents
  int64_t keys = 0;             // heads of keys and values; 0: as of queries
  int64_t window = 0;           // 0: all
  double scale = 0;             // 0: 1 / sqrt(head_size)

  int64_t key_heads() const { return keys == 0 ? heads : keys; }
  int64_t qkv_columns() const { return (heads + 2 * key_heads()) * head_size; }
  int64_t channels() const { return heads * head_size; }
  bool sees(int64_t b, int64_t query, int64_t key) const;
};
struct Attention {
  Values out, log_sum_exp;
};
Attention attention(const Values& qkv, const AttentionCase& shape);
Values attention_gradient(const Values& dout, const Values& qkv, const AttentionCase& shape);

/// losses and, scaled, their gradient with respect to the logits.
struct Loss {
  Values losses, gradient;
};
Loss cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t classes,
                   double scale);

}  // namespace ebb::test
