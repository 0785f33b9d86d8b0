#include "tests/kernels/reference.h"

#include <Eigen/Core>
#include <cmath>
#include <numbers>

namespace ebb::test {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Table = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::ArrayXd;
using Row = Eigen::Array<double, 1, Eigen::Dynamic>;

Eigen::Map<const Matrix> matrix(const Values& v, int64_t rows, int64_t columns) {
  return {v.data(), rows, columns};
}
Eigen::Map<const Table> table(const Values& v, int64_t rows, int64_t columns) {
  return {v.data(), rows, columns};
}
Eigen::Map<const Column> flat(const Values& v) { return {v.data(), std::ssize(v)}; }
Eigen::Map<const Row> row(const Values& v) { return {v.data(), std::ssize(v)}; }

template <class Expression>
Values values(const Eigen::DenseBase<Expression>& expression) {
  Values v(static_cast<size_t>(expression.size()));
  Eigen::Map<Matrix>(v.data(), expression.rows(), expression.cols()) =
      expression.derived().matrix();
  return v;
}

/// All products use this function, because each combination of types takes a second to compile.
Matrix times(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b) { return a * b; }

}  // namespace

Values absolute(const Values& v) { return values(flat(v).abs()); }
Values sum(const Values& a, const Values& b) { return values(flat(a) + flat(b)); }
Values multiply(const Values& a, const Values& b) { return values(flat(a) * flat(b)); }
Values negative(const Values& v) { return values(-flat(v)); }

Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n) {
  return values(times(matrix(a, m, k), matrix(b, k, n)));
}

Values transpose(const Values& a, int64_t rows, int64_t columns) {
  return values(matrix(a, rows, columns).transpose());
}

Values column_sums(const Values& a, int64_t rows, int64_t columns) {
  return values(matrix(a, rows, columns).colwise().sum());
}

Values linear(const Values& x, const Values& w, const Values& bias, int64_t n, int64_t c,
              int64_t oc) {
  Matrix y = times(matrix(x, n, c), matrix(w, oc, c).transpose());
  if (!bias.empty()) y.rowwise() += row(bias).matrix();
  return values(y);
}

// ---- Activations -------------------------------------------------------------------------------

namespace {

/// The argument of tanh in the approximation of GELU, and the derivative of the argument.
const double kGeluFactor = std::sqrt(2 / std::numbers::pi);
Column gelu_argument(const Column& x) { return kGeluFactor * (x + 0.044715 * x.cube()); }
Column gelu_argument_slope(const Column& x) {
  return kGeluFactor * (1 + 3 * 0.044715 * x.square());
}
/// The normal distribution function.
Column normal_cdf(const Column& x) {
  return x.unaryExpr([](double v) { return std::erfc(-v / std::numbers::sqrt2) / 2; });
}
Table sigmoid(const Table& x) { return 1 / (1 + (-x).exp()); }

}  // namespace

Values activation(Activation kind, const Values& v) {
  const Column x = flat(v);
  switch (kind) {
    case Activation::Relu:
      return values(x.max(0));
    case Activation::Gelu:
      return values(x * normal_cdf(x));
    case Activation::GeluTanh:
      return values(x * (1 + gelu_argument(x).tanh()) / 2);
  }
  return {};
}

Values activation_slope(Activation kind, const Values& v) {
  const Column x = flat(v);
  switch (kind) {
    case Activation::Relu:
      return values((x > 0).cast<double>());
    case Activation::Gelu:
      return values(normal_cdf(x) + x * (-x.square() / 2).exp() / std::sqrt(2 * std::numbers::pi));
    case Activation::GeluTanh:
      return values((1 + gelu_argument(x).tanh()) / 2 +
                    x / 2 * gelu_argument_slope(x) / gelu_argument(x).cosh().square());
  }
  return {};
}

Values swiglu(const Values& x, int64_t n, int64_t f) {
  const Table gate = table(x, n, 2 * f).leftCols(f), up = table(x, n, 2 * f).rightCols(f);
  return values(gate * sigmoid(gate) * up);
}

Values swiglu_gradient(const Values& dy, const Values& x, int64_t n, int64_t f) {
  const Table gate = table(x, n, 2 * f).leftCols(f), up = table(x, n, 2 * f).rightCols(f);
  const Table s = sigmoid(gate);
  Table dx(n, 2 * f);
  dx << table(dy, n, f) * up * (s + gate * s * (1 - s)), table(dy, n, f) * gate * s;
  return values(dx);
}

// ---- Rows ---------------------------------------------------------------------------------------

Values softmax(const Values& x, int64_t n, int64_t c) {
  Table y = table(x, n, c);
  const Column top = y.rowwise().maxCoeff();
  y = (y.colwise() - top).exp();
  const Column sum = y.rowwise().sum();
  return values(y.colwise() / sum);
}

Values softmax_gradient(const Values& dy, const Values& y, int64_t n, int64_t c) {
  const Table gradient = table(dy, n, c), result = table(y, n, c);
  const Column mean = (gradient * result).rowwise().sum();
  return values(result * (gradient.colwise() - mean));
}

SquaredError squared_error(const Values& x, const Values& targets, int64_t n, int64_t c,
                           double scale) {
  const Table difference = table(x, n, c) - table(targets, n, c);
  return {values(Column(difference.square().rowwise().mean())),
          values(Table(difference * (2 * scale / static_cast<double>(c))))};
}

// ---- Norms -------------------------------------------------------------------------------------

namespace {

/// Rows with their mean subtracted (layer norm) or not (RMS norm), divided by their root mean
/// square.
struct Normalized {
  Normalized(const Table& x, bool subtract_mean, double epsilon)
      : mean(x.rowwise().mean() * (subtract_mean ? 1 : 0)),
        y(x.colwise() - mean),
        rstd((y.square().rowwise().mean() + epsilon).sqrt().inverse()) {
    y.colwise() *= rstd;
  }
  Column mean;
  Table y;
  Column rstd;
};

NormGradient norm_gradient(const Table& dy, const Table& x, const Row& w, bool subtract_mean,
                           double epsilon) {
  const Normalized normal(x, subtract_mean, epsilon);
  const Table g = dy.rowwise() * w, gx = g * normal.y;
  Table dx = g - normal.y.colwise() * gx.rowwise().mean();
  Table dx_scale = g.abs() + normal.y.abs().colwise() * gx.abs().rowwise().mean();
  if (subtract_mean) {
    dx.colwise() -= g.rowwise().mean();
    dx_scale.colwise() += g.abs().rowwise().mean();
  }
  return {.dx = values(dx.colwise() * normal.rstd),
          .dw = values((dy * normal.y).colwise().sum()),
          .db = values(dy.colwise().sum()),
          .dx_scale = values(dx_scale.colwise() * normal.rstd),
          .dw_scale = values((dy * normal.y).abs().colwise().sum()),
          .db_scale = values(dy.abs().colwise().sum())};
}

}  // namespace

Norm layer_norm(const Values& x, const Values& w, const Values& b, int64_t n, int64_t c,
                double epsilon) {
  const Normalized normal(table(x, n, c), true, epsilon);
  const Table y = (normal.y.rowwise() * row(w)).rowwise() + row(b);
  return {values(y), values(normal.mean), values(normal.rstd)};
}

Norm rms_norm(const Values& x, const Values& w, int64_t n, int64_t c, double epsilon) {
  const Normalized normal(table(x, n, c), false, epsilon);
  return {values(normal.y.rowwise() * row(w)), {}, values(normal.rstd)};
}

NormGradient layer_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                 int64_t c, double epsilon) {
  return norm_gradient(table(dy, n, c), table(x, n, c), row(w), true, epsilon);
}

NormGradient rms_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                               int64_t c, double epsilon) {
  return norm_gradient(table(dy, n, c), table(x, n, c), row(w), false, epsilon);
}

// ---- Positions and embeddings ------------------------------------------------------------------

Values rotary_table(const Values& angles, int64_t n, int64_t half, double factor) {
  Table t(n, 2 * half);
  t << table(angles, n, half).cos(), table(angles, n, half).sin();
  return values(factor * t);
}

Values rotate(const Values& x, const Values& angles, int64_t n, int64_t columns, int64_t heads,
              int64_t width, double factor) {
  const int64_t half = width / 2;
  const Table cosine = table(angles, n, half).cos(), sine = table(angles, n, half).sin();
  Table y = table(x, n, columns);
  for (int64_t head = 0; head < heads; ++head) {
    const Table a = y.middleCols(head * width, half), b = y.middleCols(head * width + half, half);
    y.middleCols(head * width, width) << factor * (a * cosine - b * sine),
        factor * (b * cosine + a * sine);
  }
  return values(y);
}

Values embedding(const Values& t, const std::vector<int32_t>& indices, int64_t c) {
  return values(table(t, std::ssize(t) / c, c)(indices, Eigen::all));
}

Values embedding_gradient(const Values& dy, const std::vector<int32_t>& indices, int64_t c,
                          int64_t rows) {
  const auto n = std::ssize(indices);
  Matrix one_hot = Matrix::Zero(n, rows);
  for (Index i = 0; i < n; ++i) one_hot(i, indices[static_cast<size_t>(i)]) = 1;
  return values(times(one_hot.transpose(), matrix(dy, n, c)));
}

// ---- Attention ---------------------------------------------------------------------------------

bool AttentionCase::sees(int64_t b, int64_t query, int64_t key) const {
  if (causal && key > query) return false;
  if (window > 0 && key <= query - window) return false;
  if (starts.empty()) return true;
  const int32_t* const row_starts = &starts[static_cast<size_t>(b * tokens)];
  return row_starts[query] == row_starts[key];
}

namespace {

/// One head of one row of the batch: its queries, keys and values (tokens, head size), and the
/// weights (tokens, tokens) that its queries give to the keys.
struct Head {
  Head(const Values& qkv, const AttentionCase& s, int64_t b, int64_t h)
      : scale(s.scale == 0 ? 1 / std::sqrt(static_cast<double>(s.head_size)) : s.scale) {
    const int64_t n = s.tokens, d = s.head_size, key_head = h * s.key_heads() / s.heads;
    first_column[0] = h * d;
    first_column[1] = (s.heads + key_head) * d;
    first_column[2] = (s.heads + s.key_heads() + key_head) * d;
    const auto tokens = matrix(qkv, s.batch * n, s.qkv_columns()).middleRows(b * n, n);
    q = tokens.middleCols(first_column[0], d);
    k = tokens.middleCols(first_column[1], d);
    v = tokens.middleCols(first_column[2], d);

    const Mask seen = Mask::NullaryExpr(n, n, [&](Index i, Index j) { return s.sees(b, i, j); });
    const Table scores = scale * times(q, k.transpose());
    const Column top = seen.select(scores, -INFINITY).rowwise().maxCoeff();
    const Table exponentials = seen.select((scores.colwise() - top).exp(), 0);
    const Column total = exponentials.rowwise().sum();
    weights = exponentials.colwise() / total;
    log_sum_exp = top + total.log();
    dropout = Table::Ones(n, n);
    if (s.dropout != nullptr) {
      dropout = Table::NullaryExpr(n, n, [&](Index i, Index j) { return s.dropout(b, h, i, j); });
    }
  }
  double scale;
  int64_t first_column[3];
  Matrix q, k, v;
  Table weights, dropout;
  Column log_sum_exp;
};

}  // namespace

Attention attention(const Values& qkv, const AttentionCase& s) {
  Matrix out(s.batch * s.tokens, s.channels()), log_sum_exp(s.batch * s.heads, s.tokens);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head(qkv, s, b, h);
      out.block(b * s.tokens, h * s.head_size, s.tokens, s.head_size) =
          times((head.weights * head.dropout).matrix(), head.v);
      log_sum_exp.row(b * s.heads + h) = head.log_sum_exp;
    }
  }
  return {values(out), values(log_sum_exp)};
}

Values attention_gradient(const Values& dout, const Values& qkv, const AttentionCase& s) {
  const int64_t n = s.tokens, d = s.head_size;
  Matrix dqkv = Matrix::Zero(s.batch * n, s.qkv_columns());
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const Head head(qkv, s, b, h);
      const Table& p = head.weights;
      const Matrix dy = matrix(dout, s.batch * n, s.channels()).block(b * n, h * d, n, d);
      const Table dp = times(dy, head.v.transpose()).array() * head.dropout;
      const Matrix ds = head.scale * p * (dp.colwise() - (p * dp).rowwise().sum());
      const Matrix parts[] = {times(ds, head.k), times(ds.transpose(), head.q),
                              times((p * head.dropout).matrix().transpose(), dy)};
      for (int part = 0; part < 3; ++part) {
        dqkv.block(b * n, head.first_column[part], n, d) += parts[part];
      }
    }
  }
  return values(dqkv);
}

// ---- Loss and slopes ---------------------------------------------------------------------------

Loss cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t classes,
                   double scale) {
  const auto n = std::ssize(targets);
  const Table x = table(logits, n, classes);
  const Column top = x.rowwise().maxCoeff();
  const Column log_sum_exp = top + (x.colwise() - top).exp().rowwise().sum().log();
  Table gradient = scale * (x.colwise() - log_sum_exp).exp();
  Column losses = log_sum_exp;
  for (Index i = 0; i < n; ++i) {
    const int32_t target = targets[static_cast<size_t>(i)];
    if (target == -100) {
      losses(i) = 0;
      gradient.row(i) = 0;
    } else {
      losses(i) -= x(i, target);
      gradient(i, target) -= scale;
    }
  }
  return {values(losses), values(gradient)};
}

testing::AssertionResult differentiates(const std::function<Values(const Values&)>& forward,
                                        const Values& weights, const Values& x,
                                        const Values& gradient, double h, double tolerance) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Values random = random_values(std::ssize(x), 1000 + seed);
    const auto direction = flat(random);
    const Values above = forward(values(flat(x) + h * direction));
    const Values below = forward(values(flat(x) - h * direction));
    const double slope = (flat(weights) * (flat(above) - flat(below))).sum() / (2 * h);
    const Column terms = flat(gradient) * direction;
    // The terms have random signs, so that their sum is about as large as their norm.
    const double expected = terms.sum(), scale = terms.matrix().norm();
    if (!(std::abs(slope - expected) <= tolerance * scale)) {
      return testing::AssertionFailure()
             << "slope " << slope << ", gradient gives " << expected << ", scale " << scale;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace ebb::test
