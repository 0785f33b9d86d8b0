#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>

namespace ebb::test {
namespace {

size_t at(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

}  // namespace

Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n) {
  Values c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) c[at(i, n, j)] += a[at(i, k, l)] * b[at(l, n, j)];
    }
  }
  return c;
}

Values transpose(const Values& a, int64_t rows, int64_t columns) {
  Values t(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) t[at(j, rows, i)] = a[at(i, columns, j)];
  }
  return t;
}

Values column_sums(const Values& a, int64_t rows, int64_t columns) {
  Values s(static_cast<size_t>(columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) s[static_cast<size_t>(j)] += a[at(i, columns, j)];
  }
  return s;
}

Values linear(const Values& x, const Values& w, const Values& bias, int64_t n, int64_t c,
              int64_t oc) {
  Values y = product(x, transpose(w, oc, c), n, c, oc);
  for (int64_t i = 0; i < n && !bias.empty(); ++i) {
    for (int64_t j = 0; j < oc; ++j) y[at(i, oc, j)] += bias[static_cast<size_t>(j)];
  }
  return y;
}

Norm layer_norm(const Values& x, const Values& w, const Values& b, int64_t n, int64_t c,
                double epsilon) {
  Norm r{Values(x.size()), {}, {}};
  for (int64_t i = 0; i < n; ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < c; ++j) mean += x[at(i, c, j)] / static_cast<double>(c);
    for (int64_t j = 0; j < c; ++j) {
      variance += std::pow(x[at(i, c, j)] - mean, 2) / static_cast<double>(c);
    }
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < c; ++j) {
      const auto column = static_cast<size_t>(j);
      r.y[at(i, c, j)] = (x[at(i, c, j)] - mean) * rstd * w[column] + b[column];
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

NormGradient layer_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                 int64_t c, double epsilon) {
  const Values zero(w.size());
  const Norm norm = layer_norm(x, w, zero, n, c, epsilon);
  NormGradient r{Values(x.size()), zero, zero, Values(x.size()), zero, zero};
  for (int64_t i = 0; i < n; ++i) {
    const double rstd = norm.rstd[static_cast<size_t>(i)];
    const auto normal = [&](int64_t j) {
      return (x[at(i, c, j)] - norm.mean[static_cast<size_t>(i)]) * rstd;
    };
    double g_mean = 0, gx_mean = 0, g_size = 0, gx_size = 0;
    for (int64_t j = 0; j < c; ++j) {
      const double g = dy[at(i, c, j)] * w[static_cast<size_t>(j)] / static_cast<double>(c);
      g_mean += g;
      gx_mean += g * normal(j);
      g_size += std::abs(g);
      gx_size += std::abs(g * normal(j));
    }
    for (int64_t j = 0; j < c; ++j) {
      const auto column = static_cast<size_t>(j);
      const double d = dy[at(i, c, j)];
      r.dx[at(i, c, j)] = rstd * (d * w[column] - g_mean - normal(j) * gx_mean);
      r.dx_scale[at(i, c, j)] =
          rstd * (std::abs(d * w[column]) + g_size + std::abs(normal(j)) * gx_size);
      r.dw[column] += d * normal(j);
      r.db[column] += d;
      r.dw_scale[column] += std::abs(d * normal(j));
      r.db_scale[column] += std::abs(d);
    }
  }
  return r;
}

RmsNorm rms_norm(const Values& x, const Values& w, int64_t n, int64_t c, double epsilon) {
  RmsNorm r{Values(x.size()), {}};
  for (int64_t i = 0; i < n; ++i) {
    double mean = 0;
    for (int64_t j = 0; j < c; ++j) mean += std::pow(x[at(i, c, j)], 2) / static_cast<double>(c);
    r.rstd.push_back(1 / std::sqrt(mean + epsilon));
    for (int64_t j = 0; j < c; ++j) {
      r.y[at(i, c, j)] = x[at(i, c, j)] * r.rstd.back() * w[static_cast<size_t>(j)];
    }
  }
  return r;
}

RmsNormGradient rms_norm_gradient(const Values& dy, const Values& x, const Values& w, int64_t n,
                                  int64_t c, double epsilon) {
  const Values rstds = rms_norm(x, w, n, c, epsilon).rstd, zero(w.size());
  RmsNormGradient r{Values(x.size()), zero, Values(x.size()), zero};
  for (int64_t i = 0; i < n; ++i) {
    const double rstd = rstds[static_cast<size_t>(i)];
    double mean = 0, size = 0;
    for (int64_t j = 0; j < c; ++j) {
      const double term = dy[at(i, c, j)] * w[static_cast<size_t>(j)] * x[at(i, c, j)] * rstd;
      mean += term / static_cast<double>(c);
      size += std::abs(term) / static_cast<double>(c);
    }
    for (int64_t j = 0; j < c; ++j) {
      const auto column = static_cast<size_t>(j);
      const double d = dy[at(i, c, j)], normal = x[at(i, c, j)] * rstd;
      r.dx[at(i, c, j)] = rstd * (d * w[column] - normal * mean);
      r.dx_scale[at(i, c, j)] = rstd * (std::abs(d * w[column]) + std::abs(normal) * size);
      r.dw[column] += d * normal;
      r.dw_scale[column] += std::abs(d * normal);
    }
  }
  return r;
}

Values rotate(const Values& x, const Values& angles, int64_t n, int64_t columns, int64_t heads,
              int64_t width, double factor) {
  Values y = x;
  const int64_t half = width / 2;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < heads * width; ++j) {
      const int64_t pair = j % width % half;
      const double angle = angles[at(i, half, pair)];
      const bool first = j % width < half;
      const double other = x[at(i, columns, first ? j + half : j - half)];
      y[at(i, columns, j)] = factor * (x[at(i, columns, j)] * std::cos(angle) +
                                       (first ? -other : other) * std::sin(angle));
    }
  }
  return y;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

Values swiglu(const Values& x, int64_t n, int64_t f) {
  Values y;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < f; ++j) {
      y.push_back(silu(x[at(i, 2 * f, j)]) * x[at(i, 2 * f, f + j)]);
    }
  }
  return y;
}

double exact_gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double exact_gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

double gelu(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + std::tanh(u)) + 0.5 * x * slope / std::pow(std::cosh(u), 2);
}

bool AttentionCase::sees(int64_t b, int64_t query, int64_t key) const {
  if (causal && key > query) return false;
  if (window > 0 && key <= query - window) return false;
  if (starts.empty()) return true;
  return starts[at(b, tokens, query)] == starts[at(b, tokens, key)];
}

namespace {

/// Where the queries, keys or values that a query head uses begin in a row.
int64_t first_column(const AttentionCase& s, int64_t head, int64_t part) {
  const int64_t keys = s.key_heads();
  if (part == 0) return head * s.head_size;
  return (s.heads + (part - 1) * keys + head * keys / s.heads) * s.head_size;
}

double scale_of(const AttentionCase& s) {
  return s.scale == 0 ? 1 / std::sqrt(static_cast<double>(s.head_size)) : s.scale;
}

/// One head's queries, keys or values as (T, head_size).
Values head_part(const Values& qkv, const AttentionCase& s, int64_t b, int64_t head, int64_t part) {
  Values r;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const size_t first = at(b * s.tokens + t, s.qkv_columns(), first_column(s, head, part));
    r.insert(r.end(), &qkv[first], &qkv[first] + s.head_size);
  }
  return r;
}

struct Weights {
  Values p, log_sum_exp;
};

Weights softmax_weights(const Values& q, const Values& k, const AttentionCase& s, int64_t b) {
  const int64_t n = s.tokens;
  Weights r{product(q, transpose(k, n, s.head_size), n, s.head_size, n), {}};
  for (int64_t i = 0; i < n; ++i) {
    double top = -INFINITY, total = 0;
    for (int64_t j = 0; j < n; ++j) {
      double& x = r.p[at(i, n, j)];
      x = s.sees(b, i, j) ? x * scale_of(s) : -INFINITY;
      top = std::max(top, x);
    }
    for (int64_t j = 0; j < n; ++j) total += std::exp(r.p[at(i, n, j)] - top);
    for (int64_t j = 0; j < n; ++j) r.p[at(i, n, j)] = std::exp(r.p[at(i, n, j)] - top) / total;
    r.log_sum_exp.push_back(top + std::log(total));
  }
  return r;
}

}  // namespace

Attention attention(const Values& qkv, const AttentionCase& s) {
  Attention r{Values(static_cast<size_t>(s.batch * s.tokens * s.channels())), {}};
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const Weights w =
          softmax_weights(head_part(qkv, s, b, h, 0), head_part(qkv, s, b, h, 1), s, b);
      const Values out = product(w.p, head_part(qkv, s, b, h, 2), s.tokens, s.tokens, s.head_size);
      for (int64_t t = 0; t < s.tokens; ++t) {
        std::copy_n(&out[at(t, s.head_size, 0)], s.head_size,
                    &r.out[at(b * s.tokens + t, s.channels(), h * s.head_size)]);
      }
      r.log_sum_exp.insert(r.log_sum_exp.end(), w.log_sum_exp.begin(), w.log_sum_exp.end());
    }
  }
  return r;
}

Values attention_gradient(const Values& dout, const Values& qkv, const AttentionCase& s) {
  Values r(qkv.size());
  const int64_t n = s.tokens, d = s.head_size;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const Values q = head_part(qkv, s, b, h, 0), k = head_part(qkv, s, b, h, 1);
      const Values v = head_part(qkv, s, b, h, 2);
      const Values p = softmax_weights(q, k, s, b).p;
      Values go;
      for (int64_t t = 0; t < n; ++t) {
        const size_t first = at(b * n + t, s.channels(), h * d);
        go.insert(go.end(), &dout[first], &dout[first] + d);
      }
      const Values dv = product(transpose(p, n, n), go, n, n, d);
      Values ds = product(go, transpose(v, n, d), n, d, n);
      for (int64_t i = 0; i < n; ++i) {
        double mean = 0;
        for (int64_t j = 0; j < n; ++j) mean += ds[at(i, n, j)] * p[at(i, n, j)];
        for (int64_t j = 0; j < n; ++j) {
          ds[at(i, n, j)] = p[at(i, n, j)] * (ds[at(i, n, j)] - mean) * scale_of(s);
        }
      }
      const Values parts[] = {product(ds, k, n, n, d), product(transpose(ds, n, n), q, n, n, d),
                              dv};
      for (int64_t part = 0; part < 3; ++part) {
        for (int64_t t = 0; t < n; ++t) {
          for (int64_t i = 0; i < d; ++i) {
            r[at(b * n + t, s.qkv_columns(), first_column(s, h, part) + i)] +=
                parts[part][at(t, d, i)];
          }
        }
      }
    }
  }
  return r;
}

Loss cross_entropy(const Values& logits, const std::vector<int32_t>& targets, int64_t classes,
                   double scale) {
  Loss r{{}, Values(logits.size())};
  for (size_t i = 0; i < targets.size(); ++i) {
    const double* x = &logits[i * static_cast<size_t>(classes)];
    double* g = &r.gradient[i * static_cast<size_t>(classes)];
    if (targets[i] == -100) {
      r.losses.push_back(0);
      continue;
    }
    const double top = *std::max_element(x, x + classes);
    double total = 0;
    for (int64_t j = 0; j < classes; ++j) total += std::exp(x[j] - top);
    r.losses.push_back(std::log(total) + top - x[targets[i]]);
    for (int64_t j = 0; j < classes; ++j) {
      g[j] = scale * (std::exp(x[j] - top) / total - (j == targets[i] ? 1 : 0));
    }
  }
  return r;
}

}  // namespace ebb::test
