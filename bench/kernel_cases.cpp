#include "bench/kernel_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <string_view>

namespace ebb::bench {
namespace {

constexpr int64_t kHeadSize = 64;
constexpr int64_t kVocabulary = 50257, kChannels = 768;
constexpr float kEpsilon = 1e-5f;
constexpr float kGradientScale = 0.01f;

/// Throws if the difference between an element and `expected` is larger than the rounding error of
/// its type. `magnitude`: the size of the terms of its sum.
void check_close(const Storage& found, int64_t i, double expected, double magnitude,
                 std::string_view what) {
  const double rounding = found.tensor().dtype == DType::F32 ? 2e-5 : 0x1p-6;
  if (std::abs(found[i] - expected) <= rounding * (magnitude + std::abs(expected))) return;
  throw NumericError(
      fmt::format("{}: element {} is {}, it should be {}", what, i, found[i], expected));
}

/// The same for the elements from `first` on; the largest one is the magnitude.
void check_row_close(const Storage& found, int64_t first, const std::vector<double>& expected,
                     std::string_view what) {
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (const double x : expected) check_close(found, first++, x, largest, what);
}

double gelu_part(double x) {
  return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
}
double gelu(double x) { return 0.5 * x * (1 + gelu_part(x)); }
double gelu_slope(double x) {
  const double t = gelu_part(x);
  const double inner_slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope;
}

/// Calls check(i) for some elements, the first and the last among them.
template <class Check>
void for_sample(int64_t n, const Check& check) {
  for (int64_t i = 0; i < n; i += n / 97 + 1) check(i);
  check(n - 1);
}

}  // namespace

Indices::Indices(int64_t n, int64_t limit) : Storage(DType::I32, {n}) {
  std::minstd_rand random(3);
  for (int64_t i = 0; i < n; ++i) {
    tensor().as<int32_t>()[i] = static_cast<int32_t>(static_cast<int64_t>(random()) % limit);
  }
}

// ---- Attention

/// One query of one head, in fp64.
struct Attention::Row {
  std::vector<double> weights;  // of the keys that it sees
  std::vector<double> out;
};

Attention::Attention(HostKernels& kernels, DType dtype, int64_t batch, int64_t tokens,
                     int64_t heads)
    : batch_(batch),
      tokens_(tokens),
      heads_(heads),
      qkv_(dtype, {batch, tokens, 3 * heads * kHeadSize}, 1),
      dout_(dtype, {batch, tokens, heads * kHeadSize}, 1, 2),
      out_(dtype, {batch, tokens, heads * kHeadSize}),
      dqkv_(dtype, {batch, tokens, 3 * heads * kHeadSize}),
      log_sum_exp_(DType::F32, {batch, heads, tokens}) {
  const AttentionShape shape{.num_heads = heads};
  const auto forward = [this, &kernels, shape] {
    kernels->submit(kernels.stream, AttentionForward{out_, log_sum_exp_, qkv_, shape});
  };
  const auto backward = [this, &kernels, shape] {
    kernels->submit(kernels.stream,
                    AttentionBackward{dqkv_, dout_, qkv_, out_, log_sum_exp_, shape});
  };
  forward();
  cases_.push_back({.run = forward, .check = [this, forward] {
                      forward();
                      check_forward();
                    }});
  cases_.push_back({.run = backward, .check = [this, backward] {
                      backward();
                      check_backward();
                    }});
}

Attention::Row Attention::row(int64_t b, int64_t head, int64_t query) const {
  const int64_t channels = heads_ * kHeadSize;
  const auto at = [&](int64_t token, int64_t part, int64_t i) {
    return qkv_[((b * tokens_ + token) * 3 + part) * channels + head * kHeadSize + i];
  };
  Row row{{}, std::vector<double>(kHeadSize)};
  double sum = 0;
  for (int64_t key = 0; key <= query; ++key) {
    double score = 0;
    for (int64_t i = 0; i < kHeadSize; ++i) score += at(query, 0, i) * at(key, 1, i);
    row.weights.push_back(std::exp(score / std::sqrt(kHeadSize)));
    sum += row.weights.back();
  }
  for (int64_t key = 0; key <= query; ++key) {
    double& weight = row.weights[static_cast<size_t>(key)];
    weight /= sum;
    for (int64_t i = 0; i < kHeadSize; ++i)
      row.out[static_cast<size_t>(i)] += weight * at(key, 2, i);
  }
  return row;
}

void Attention::check_forward() const {
  for_sample(tokens_, [&](int64_t query) {
    const int64_t b = query % batch_, head = query % heads_;
    check_row_close(out_, ((b * tokens_ + query) * heads_ + head) * kHeadSize,
                    row(b, head, query).out, "attention");
  });
}

/// The gradients of the last key and value of some heads, which one query sees, and of that query.
void Attention::check_backward() const {
  const int64_t last = tokens_ - 1, channels = heads_ * kHeadSize;
  for (int64_t head = 0; head < heads_; head += 5) {
    const int64_t b = head % batch_;
    const int64_t row_of_qkv = (b * tokens_ + last) * 3 * channels + head * kHeadSize;
    const int64_t row_of_out = (b * tokens_ + last) * channels + head * kHeadSize;
    const auto qkv = [&](int64_t token, int64_t part, int64_t i) {
      return qkv_[((b * tokens_ + token) * 3 + part) * channels + head * kHeadSize + i];
    };
    const Row expected = row(b, head, last);
    double dot = 0;  // of the output and its gradient
    for (int64_t i = 0; i < kHeadSize; ++i) {
      dot += dout_[row_of_out + i] * expected.out[static_cast<size_t>(i)];
    }
    std::vector<double> dq(kHeadSize), dk(kHeadSize), dv(kHeadSize);
    double dscore = 0;  // of the last key at the end of the loop
    for (int64_t key = 0; key <= last; ++key) {
      double dweight = -dot;
      for (int64_t i = 0; i < kHeadSize; ++i) dweight += dout_[row_of_out + i] * qkv(key, 2, i);
      dscore = expected.weights[static_cast<size_t>(key)] * dweight / std::sqrt(kHeadSize);
      for (int64_t i = 0; i < kHeadSize; ++i) dq[static_cast<size_t>(i)] += dscore * qkv(key, 1, i);
    }
    for (int64_t i = 0; i < kHeadSize; ++i) {
      dk[static_cast<size_t>(i)] = dscore * qkv(last, 0, i);
      dv[static_cast<size_t>(i)] = expected.weights.back() * dout_[row_of_out + i];
    }
    check_row_close(dqkv_, row_of_qkv, dq, "dq of attention");
    check_row_close(dqkv_, row_of_qkv + channels, dk, "dk of attention");
    check_row_close(dqkv_, row_of_qkv + 2 * channels, dv, "dv of attention");
  }
}

// ---- Layer norm

LayerNorm::LayerNorm(HostKernels& kernels, DType dtype, int64_t rows, int64_t columns)
    : rows_(rows),
      columns_(columns),
      x_(dtype, {rows, columns}, 1),
      dy_(dtype, {rows, columns}, 1, 2),
      w_(dtype, {columns}, 1, 3),
      b_(dtype, {columns}, 1, 4),
      y_(dtype, {rows, columns}),
      mean_(DType::F32, {rows}),
      rstd_(DType::F32, {rows}),
      dx_(dtype, {rows, columns}),
      dw_(DType::F32, {columns}),
      db_(DType::F32, {columns}) {
  const auto forward = [this, &kernels] {
    kernels->submit(kernels.stream, LayerNormForward{y_, mean_, rstd_, x_, w_, b_, kEpsilon});
  };
  const auto backward = [this, &kernels](Write write) {
    kernels->submit(kernels.stream, LayerNormBackward{dx_, write, dw_, db_, Write::Store, dy_, x_,
                                                      w_, mean_, rstd_});
  };
  forward();
  cases_.push_back({.reads = {&x_}, .write = &y_, .run = forward, .check = [this, forward] {
                      forward();
                      check_forward();
                    }});
  cases_.push_back({.reads = {&x_, &dy_},
                    .write = &dx_,
                    .run = [backward] { backward(Write::Store); },
                    .check =
                        [this, backward] {
                          backward(Write::Store);
                          check_backward(1);
                        }});
  cases_.push_back({.reads = {&x_, &dy_, &dx_},
                    .write = &dx_,
                    .run = [backward] { backward(Write::Add); },
                    .check =
                        [this, backward] {
                          backward(Write::Store);
                          backward(Write::Add);
                          check_backward(2);
                        }});
}

void LayerNorm::check_forward() const {
  for_sample(rows_, [&](int64_t row) {
    double sum = 0, square_sum = 0;
    for (int64_t i = row * columns_; i < (row + 1) * columns_; ++i) sum += x_[i];
    const auto columns = static_cast<double>(columns_);
    const double mean = sum / columns;
    for (int64_t i = row * columns_; i < (row + 1) * columns_; ++i) {
      square_sum += (x_[i] - mean) * (x_[i] - mean);
    }
    const double rstd = 1 / std::sqrt(square_sum / columns + kEpsilon);
    check_close(mean_, row, mean, 1, "mean");
    check_close(rstd_, row, rstd, 1, "rstd");
    for (int64_t i = 0; i < columns_; ++i) {
      const int64_t at = row * columns_ + i;
      check_close(y_, at, (x_[at] - mean) * rstd * w_[i] + b_[i], 1, "layer norm");
    }
  });
}

/// dx of some rows after `times` gradients were added, and the sums of some columns.
void LayerNorm::check_backward(double times) const {
  const auto normed = [&](int64_t row, int64_t i) {
    return (x_[row * columns_ + i] - mean_[row]) * rstd_[row];
  };
  for_sample(rows_, [&](int64_t row) {
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < columns_; ++i) {
      sum += dy_[row * columns_ + i] * w_[i];
      dot += dy_[row * columns_ + i] * w_[i] * normed(row, i);
    }
    const auto columns = static_cast<double>(columns_);
    for (int64_t i = 0; i < columns_; ++i) {
      const int64_t at = row * columns_ + i;
      const double inner = dy_[at] * w_[i] - sum / columns - normed(row, i) * dot / columns;
      check_close(dx_, at, times * rstd_[row] * inner, 1, "dx of layer norm");
    }
  });
  for_sample(columns_, [&](int64_t i) {
    double dw = 0, db = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      dw += dy_[row * columns_ + i] * normed(row, i);
      db += dy_[row * columns_ + i];
    }
    const double magnitude = std::sqrt(static_cast<double>(rows_));
    check_close(dw_, i, dw, magnitude, "dw of layer norm");
    check_close(db_, i, db, magnitude, "db of layer norm");
  });
}

// ---- Element by element

Elementwise::Elementwise(HostKernels& kernels, DType dtype, int64_t rows, int64_t columns)
    : x_(dtype, {rows, columns}, 4), dy_(dtype, {rows, columns}, 1, 2), y_(dtype, {rows, columns}) {
  const auto add_case = [&](const char* name, std::vector<const Storage*> reads, auto run,
                            auto expected) {
    cases_.push_back({.reads = std::move(reads), .write = &y_, .run = run, .check = [=, this] {
                        run();
                        for_sample(y_.tensor().num_elements(),
                                   [&](int64_t i) { check_close(y_, i, expected(i), 1, name); });
                      }});
  };
  constexpr Activation kGelu = Activation::GeluTanh;
  add_case(
      kNames[0], {&x_},
      [this, &kernels] {
        kernels->submit(kernels.stream, ActivationForward{y_, x_, kGelu});
      },
      [this](int64_t i) { return gelu(x_[i]); });
  add_case(
      kNames[1], {&x_, &dy_},
      [this, &kernels] {
        kernels->submit(kernels.stream, ActivationBackward{y_, dy_, x_, kGelu, Write::Store});
      },
      [this](int64_t i) { return gelu_slope(x_[i]) * dy_[i]; });
  add_case(
      kNames[2], {&x_, &dy_},
      [this, &kernels] {
        kernels->submit(kernels.stream, Add{y_, x_, dy_});
      },
      [this](int64_t i) { return x_[i] + dy_[i]; });
}

Accumulate::Accumulate(HostKernels& kernels, int64_t n)
    : x_(DType::F32, {n}, 1), y_(DType::F32, {n}) {
  const auto run = [this, &kernels] { kernels->submit(kernels.stream, ebb::Accumulate{y_, x_}); };
  cases_.push_back({.reads = {&x_, &y_}, .write = &y_, .run = run, .check = [this, run] {
                      const std::vector<float> before(y_.tensor().as<float>(),
                                                      y_.tensor().as<float>() + y_.num_words());
                      run();
                      for_sample(y_.tensor().num_elements(), [&](int64_t i) {
                        check_close(y_, i, before[static_cast<size_t>(i)] + x_[i], 1, "accumulate");
                      });
                    }});
}

// ---- Loss

/// A call overwrites the logits with their gradients. These are the logits of the next call, which
/// takes the same time.
CrossEntropy::CrossEntropy(HostKernels& kernels, DType dtype, int64_t rows, int64_t classes)
    : classes_(classes),
      logits_(dtype, {rows, classes}, 4),
      losses_(DType::F32, {rows}),
      targets_(rows, classes) {
  const auto run = [this, &kernels] {
    kernels->submit(kernels.stream, ebb::CrossEntropy{losses_, logits_, targets_, kGradientScale});
  };
  const auto check = [this, run] {
    std::vector<double> logits(static_cast<size_t>(classes_));
    double sum = 0;
    for (int64_t i = 0; i < classes_; ++i) {
      logits[static_cast<size_t>(i)] = logits_[i];
      sum += std::exp(logits_[i]);
    }
    run();
    const int64_t target = targets_.tensor().as<int32_t>()[0];
    check_close(losses_, 0, std::log(sum) - logits[static_cast<size_t>(target)], 1, "loss");
    for_sample(classes_, [&](int64_t i) {
      const double share = std::exp(logits[static_cast<size_t>(i)]) / sum;
      check_close(logits_, i, (share - (i == target)) * kGradientScale, 1e-7,
                  "gradient of the loss");
    });
  };
  cases_.push_back({.reads = {&logits_}, .write = &logits_, .run = run, .check = check});
}

// ---- Embedding

Embedding::Embedding(HostKernels& kernels, DType dtype, int64_t rows)
    : table_(dtype, {kVocabulary, kChannels}, 1),
      positions_(dtype, {rows, kChannels}, 1, 2),
      y_(dtype, {rows, kChannels}),
      dtable_(DType::F32, {kVocabulary, kChannels}),
      tokens_(rows, kVocabulary),
      places_(rows, rows) {
  const int32_t* const tokens = tokens_.tensor().as<int32_t>();
  const int32_t* const places = places_.tensor().as<int32_t>();
  const auto forward = [this, &kernels] {
    kernels->submit(kernels.stream, EmbeddingForward{y_, tokens_, places_, table_, positions_});
  };
  const auto backward = [this, &kernels] {
    kernels->submit(kernels.stream, EmbeddingBackward{dtable_, y_, tokens_, Write::Store});
  };
  forward();
  cases_.push_back({.reads = {&positions_}, .write = &y_, .run = forward, .check = [=, this] {
                      forward();
                      for_sample(y_.tensor().num_elements(), [&](int64_t i) {
                        const int64_t row = i / kChannels, column = i % kChannels;
                        check_close(y_, i,
                                    table_[tokens[row] * kChannels + column] +
                                        positions_[places[row] * kChannels + column],
                                    1, "embedding");
                      });
                    }});
  cases_.push_back({.write = &dtable_, .run = backward, .check = [=, this] {
                      backward();
                      for_sample(kChannels, [&](int64_t column) {
                        double sum = 0;
                        for (int64_t row = 0; row < rows; ++row) {
                          if (tokens[row] == tokens[0]) sum += y_[row * kChannels + column];
                        }
                        check_close(dtable_, tokens[0] * kChannels + column, sum, 1,
                                    "gradient of the embedding");
                      });
                    }});
}

}  // namespace ebb::bench
