// The kernels in fp64, as Eigen expressions of their definitions: what the tests compare with.
//
// A matrix (rows, columns) is stored row by row in Values. Nothing here uses code of the kernels.
// Only reference.cpp includes Eigen, because Eigen takes long to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/kernels/harness.h"

namespace ebb::test {

Values absolute(const Values& v);
/// Element by element.
Values sum(const Values& a, const Values& b);
Values multiply(const Values& a, const Values& b);
Values negative(const Values& v);

/// a (m, k) b (k, n)
Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n);
Values transpose(const Values& a, int64_t rows, int64_t columns);
Values column_sums(const Values& a, int64_t rows, int64_t columns);
/// y (n, oc) = x (n, c) w (oc, c)^T + bias (oc, or empty)
Values linear(const Values& x, const Values& w, const Values& bias, int64_t n, int64_t c,
              int64_t oc);

Values activation(Activation kind, const Values& x);
/// The derivative of the activation at each x.
Values activation_slope(Activation kind, const Values& x);
/// x (n, 2 f) -> (n, f): the activated first half of each row times its second half.
Values swiglu(const Values& x, int64_t n, int64_t f);
Values swiglu_gradient(const Values& dy, const Values& x, int64_t n, int64_t f);

/// The softmax of each row of x (n, c), and the gradient of x from dy and the result y.
Values softmax(const Values& x, int64_t n, int64_t c);
Values softmax_gradient(const Values& dy, const Values& y, int64_t n, int64_t c);

/// The mean of (x - targets)^2 over each row, and `scale` times the gradient of their sum.
struct SquaredError {
  Values losses, gradient;
};
SquaredError squared_error(const Values& x, const Values& targets, int64_t n, int64_t c,
                           double scale);

/// `mean` is empty for rms_norm.
struct Norm {
  Values y, mean, rstd;
};
Norm layer_norm(const Values& x, const Values& w, const Values& b, int64_t n, int64_t c,
                double epsilon);
Norm rms_norm(const Values& x, const Values& w, int64_t n, int64_t c, double epsilon);

/// A scale is the sum of the absolute values of the terms that make the element.
struct NormGradient {
  Values dx, dw, db;
  Values dx_scale, dw_scale, db_scale;
};
NormGradient layer_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                 int64_t c, double epsilon);
NormGradient rms_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                               int64_t c, double epsilon);

/// (n, 2 half): the cosines of angles (n, half), then their sines, times `factor`.
Values rotary_table(const Values& angles, int64_t n, int64_t half, double factor);
/// x (n, columns) with its first `heads` heads rotated by angles (n, width / 2), and multiplied.
Values rotate(const Values& x, const Values& angles, int64_t n, int64_t columns, int64_t heads,
              int64_t width, double factor);

/// The rows of table (any number, c) that the indices name.
Values embedding(const Values& table, const std::vector<int32_t>& indices, int64_t c);
/// The gradient of table (rows, c): each row of dy is added to the row that its index names.
Values embedding_gradient(const Values& dy, const std::vector<int32_t>& indices, int64_t c,
                          int64_t rows);

struct AttentionCase {
  int64_t batch, tokens, heads, head_size;
  bool causal;
  std::vector<int32_t> starts;  // empty: each row of the batch is one document
  int64_t keys = 0;             // number of heads of keys and values; 0: as many as of queries
  int64_t window = 0;           // 0: no window
  double scale = 0;             // 0: 1 / sqrt(head_size)
  /// Dropout multiplies the weight of (row, head, query, key) by this. Empty: no dropout.
  std::function<double(int64_t, int64_t, int64_t, int64_t)> dropout = {};

  int64_t key_heads() const { return keys == 0 ? heads : keys; }
  int64_t qkv_columns() const { return (heads + 2 * key_heads()) * head_size; }
  int64_t channels() const { return heads * head_size; }
  /// Whether a query of row b may see a key.
  bool sees(int64_t b, int64_t query, int64_t key) const;
};
struct Attention {
  Values out, log_sum_exp;
};
Attention attention(const Values& qkv, const AttentionCase& shape);
/// The gradient of qkv.
Values attention_gradient(const Values& dout, const Values& qkv, const AttentionCase& shape);

/// The losses, and `scale` times the gradient of their sum with respect to the logits. A target
/// of -100 has no loss.
struct Loss {
  Values losses, gradient;
};
Loss cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t classes,
                   double scale);

/// Compares `gradient` with central differences of width 2 h of the scalar
/// dot(weights, forward(x)), along three random directions.
testing::AssertionResult differentiates(const std::function<Values(const Values&)>& forward,
                                        const Values& weights, const Values& x,
                                        const Values& gradient, double h, double tolerance);

}  // namespace ebb::test
