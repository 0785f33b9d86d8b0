// GB/s of the kernels whose limit is device memory, in bf16, and the share of the rate of a copy on
// the device in the same run. Only the bytes that a kernel must read or write at least once are
// counted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "bench/gpu/gpu.h"
#include "scheduler/plan/simulate.h"

namespace ebb::bench {
namespace {

struct Matrix {
  int64_t rows, columns;
};

/// The kernels on one activation (N, C), one after the other.
class MemoryKernels {
 public:
  MemoryKernels(Gpu& gpu, Matrix shape, double copy_bytes_per_s)
      : gpu_(gpu),
        kernels_(gpu.kernels()),
        n_(shape.rows),
        c_(shape.columns),
        copy_bytes_per_s_(copy_bytes_per_s),
        x_(gpu.make(DType::BF16, {n_, c_})),
        dy_(gpu.make(DType::BF16, {n_, c_})),
        y_(gpu.make_empty(DType::BF16, {n_, c_})),
        weight_(gpu.make(DType::BF16, {c_})),
        bias_(gpu.make(DType::BF16, {c_})),
        mean_(gpu.make_empty(DType::F32, {n_})),
        rstd_(gpu.make_empty(DType::F32, {n_})),
        dweight_(gpu.make_empty(DType::F32, {c_})),
        dbias_(gpu.make_empty(DType::F32, {c_})) {}

  void norms() {
    Stream& on = gpu_.compute();
    measure("layer norm", 4, [&] {
      kernels_.submit(on, LayerNormForward{y_, mean_, rstd_, x_, weight_, bias_, kEpsilon});
    });
    check_norm();
    measure("  backward", 6, [&] {
      kernels_.submit(on, LayerNormBackward{y_, Write::Store, dweight_, dbias_, Write::Store, dy_,
                                            x_, weight_, mean_, rstd_});
    });
    check_orthogonal("layer norm's gradient", [](int64_t) { return 1.0; });
    measure("RMS norm", 4, [&] {
      kernels_.submit(on, RmsNormForward{y_, rstd_, x_, weight_, kEpsilon});
    });
    check_rms_norm();
    measure("  backward", 6, [&] {
      kernels_.submit(
          on, RmsNormBackward{y_, Write::Store, dweight_, Write::Store, dy_, x_, weight_, rstd_});
    });
    check_orthogonal("RMS norm's gradient", [](int64_t i) { return double{Gpu::value(i)}; });
  }

  void elementwise() {
    Stream& on = gpu_.compute();
    measure("residual", 6, [&] { kernels_.submit(on, Add{y_, x_, dy_}); });
    check_close(gpu_.read(y_, c_ + 1, 1)[0], 2.0 * Gpu::value(c_ + 1), 0, "a sum");
    measure("GELU", 4, [&] {
      kernels_.submit(on, ActivationForward{y_, x_, Activation::GeluTanh});
    });
    const double x = Gpu::value(kPlace);
    check_close(gpu_.read(y_, kPlace, 1)[0], gelu(x), 1e-2, "GELU");
    measure("  backward", 6, [&] {
      kernels_.submit(on, ActivationBackward{y_, dy_, x_, Activation::GeluTanh, Write::Store});
    });
    const double slope = (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
    check_close(gpu_.read(y_, kPlace, 1)[0], x * slope, 1e-2, "GELU's gradient");
    const Tensor half = gpu_.make_empty(DType::BF16, {n_, c_ / 2});
    measure("SwiGLU", 3, [&] { kernels_.submit(on, SwigluForward{half, x_}); });
    const double gate = Gpu::value(0), up = Gpu::value(c_ / 2);
    check_close(gpu_.read(half, 0, 1)[0], gate * up / (1 + std::exp(-gate)), 1e-2, "SwiGLU");
    measure("  backward", 5, [&] {
      kernels_.submit(on, SwigluBackward{y_, half, x_, Write::Store});
    });
    const double silu = gate / (1 + std::exp(-gate));
    check_close(gpu_.read(y_, c_ / 2, 1)[0], silu * up * silu, 1e-2, "SwiGLU's gradient");
  }

  /// The gradient of a table with GPT-2's vocabulary, for bytes of text: few distinct indices, and
  /// every sixth is the same.
  void embedding_gradient() {
    constexpr int64_t kVocabulary = 50257;
    constexpr int32_t kSpace = 32;
    const auto index_of = [](int64_t row) {
      return row % 6 == 0 ? kSpace : static_cast<int32_t>(row % 256);
    };
    std::vector<int32_t> indices;
    double expected = 0, size = 0;
    for (int64_t row = 0; row < n_; ++row) {
      indices.push_back(index_of(row));
      if (indices.back() != kSpace) continue;
      expected += Gpu::value(row * c_);
      size += std::abs(Gpu::value(row * c_));
    }
    const Tensor tokens = integers(indices);
    const Tensor table = gpu_.make_empty(DType::F32, {kVocabulary, c_});
    const double table_bytes = 4.0 * kVocabulary / static_cast<double>(n_);
    measure("embedding's gradient", 2 + table_bytes, [&] {
      kernels_.submit(gpu_.compute(), EmbeddingBackward{table, dy_, tokens, Write::Store});
    });
    check_close(gpu_.read(table, kSpace * c_, 1)[0], expected, 1e-6 * size,
                "a sum of the embedding's gradient");
  }

  /// The loss overwrites the logits with their gradient, which the next call reads as logits.
  void loss() {
    const Tensor targets = integers(std::vector<int32_t>(static_cast<size_t>(n_), 1));
    const Tensor losses = gpu_.make_empty(DType::F32, {n_});
    const Tensor logits = gpu_.make(DType::BF16, {n_, (c_ + 63) / 64 * 64});
    measure("cross-entropy", 4, [&] {
      kernels_.submit(gpu_.compute(), CrossEntropy{losses, logits, targets, 1.0f, c_});
    });
    double sum = 0;
    for (const float g : gpu_.read(logits, 0, c_)) sum += g;
    check_close(static_cast<float>(sum), 0, 2e-2, "the sum of a row of the loss's gradient");
  }

  void gradient_and_update() {
    const Tensor sums = gpu_.make(DType::F32, {n_ * c_});
    const int64_t pieces = (n_ * c_ + kPieceElements - 1) / kPieceElements;
    const Tensor partials = gpu_.make_empty(DType::F64, {pieces});
    const Tensor gradient = gpu_.make_empty(DType::BF16, {n_ * c_});
    measure("finished gradient, norm", 6, [&] {
      kernels_.submit(gpu_.compute(), RoundGradient{gradient, sums, {}, partials});
    });
    check_close(gpu_.read(gradient, kPlace, 1)[0], Gpu::value(kPlace), 0, "a finished gradient");
    const Tensor weight{x_.data, DType::BF16, {n_ * c_}};
    const Tensor low = gpu_.make_empty(DType::I16, {n_ * c_});
    const Tensor momentum = gpu_.make_empty(DType::F32, {n_ * c_});
    const Tensor variance = gpu_.make_empty(DType::F32, {n_ * c_});
    const Planes planes{.planes = {weight.data, low.data, momentum.data, variance.data},
                        .gradient = gradient.data,
                        .weight_dtype = DType::BF16,
                        .gradient_dtype = DType::BF16};
    const Buffer coefficients =
        gpu_.device().allocate(MemoryKind::Pinned, sizeof(AdamWCoefficients), "coefficients");
    auto* const constants = reinterpret_cast<AdamWCoefficients*>(coefficients.data());
    *constants = {.gradient_scale = 1,
                  .beta1 = 0,  // the momentum is then the gradient, however often it is updated
                  .one_minus_beta1 = 1,
                  .beta2 = 0.95f,
                  .one_minus_beta2 = 0.05f,
                  .decay_rate = 0,
                  .step_size = 0,
                  .v_correction = 1,
                  .epsilon = 1e-8f};
    const auto measure_update = [&](const char* name, std::span<const UpdateRange> ranges) {
      kernels_.submit(gpu_.compute(), FillZero{momentum});
      measure(name, update_bytes_per_parameter(DType::BF16, DType::BF16), [&] {
        kernels_.submit(gpu_.compute(), AdamWUpdate{planes, ranges, {constants, 1}});
      });
      for (const int64_t i : {kPlace, n_ * c_ - 1}) {
        check_close(gpu_.read(momentum, i, 1)[0], Gpu::value(i), 0, "a momentum");
        check_close(gpu_.read(weight, i, 1)[0], Gpu::value(i), 0, "a weight at a rate of 0");
      }
    };
    const UpdateRange all{.count = n_ * c_};
    measure_update("AdamW", {&all, 1});
    // Pairs of a bias and a matrix, as in a chunk of a small model; 20 pairs of the large shapes.
    const int64_t rows_of_pair = std::max<int64_t>(2, (n_ + 19) / 20);
    std::vector<UpdateRange> tensors;
    for (int64_t row = 0; row < n_; row += rows_of_pair) {
      const int64_t end = std::min(n_, row + rows_of_pair);
      tensors.push_back({.first = row * c_, .count = c_});
      tensors.push_back({.first = (row + 1) * c_, .count = (end - row - 1) * c_});
    }
    measure_update("  of 40 tensors", tensors);
  }

 private:
  static constexpr float kEpsilon = 1e-5f;
  static constexpr int64_t kPlace = 7;  // the element that is checked

  static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor tensor = gpu_.make_empty(DType::I32, {static_cast<int64_t>(values.size())});
    const Buffer from = gpu_.device().allocate(MemoryKind::Pinned, tensor.bytes(), "integers");
    std::ranges::copy(values, reinterpret_cast<int32_t*>(from.data()));
    gpu_.compute().copy(tensor.data, from.data(), tensor.bytes(), CopyKind::Load);
    gpu_.compute().synchronize();
    return tensor;
  }

  void measure(const char* what, double bytes_per_element, const std::function<void()>& submit) {
    const double seconds = gpu_.seconds_of(submit);
    const double rate = bytes_per_element * static_cast<double>(n_ * c_) / seconds;
    fmt::print("{:<24} {:>7} {:>8} {:>10.1f} {:>9.1f} {:>7.1f} %\n", what, n_, c_, 1e6 * seconds,
               rate / 1e9, 100 * rate / copy_bytes_per_s_);
    std::fflush(stdout);
  }

  /// Checks one element of the last row.
  void check_norm() {
    const int64_t first = (n_ - 1) * c_;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c_; ++i) sum += Gpu::value(first + i);
    const double mean = sum / static_cast<double>(c_);
    for (int64_t i = 0; i < c_; ++i) squares += std::pow(Gpu::value(first + i) - mean, 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c_) + kEpsilon);
    const double expected = (Gpu::value(first) - mean) * rstd * Gpu::value(0) + Gpu::value(0);
    check_close(gpu_.read(y_, first, 1)[0], expected, 2e-2, "layer norm");
  }

  void check_rms_norm() {
    double squares = 0;
    for (int64_t i = 0; i < c_; ++i) squares += std::pow(Gpu::value(i), 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c_) + kEpsilon);
    check_close(gpu_.read(y_, kPlace, 1)[0], std::pow(Gpu::value(kPlace), 2) * rstd, 2e-2,
                "RMS norm");
  }

  /// The gradient of a norm has no component along the directions that the norm removes. Checks
  /// this for the first row of y.
  void check_orthogonal(const char* what, const std::function<double(int64_t)>& along) {
    double sum = 0, size = 0;
    const std::vector<float> row = gpu_.read(y_, 0, c_);
    for (int64_t i = 0; i < c_; ++i) {
      const double part = along(i) * static_cast<double>(row[static_cast<size_t>(i)]);
      sum += part;
      size += std::abs(part);
    }
    if (size == 0) check_close(0, 1, 0, what);
    check_close(static_cast<float>(sum / size), 0, 5e-3, what);
  }

  Gpu& gpu_;
  Kernels& kernels_;
  const int64_t n_, c_;
  const double copy_bytes_per_s_;
  const Tensor x_, dy_, y_, weight_, bias_, mean_, rstd_, dweight_, dbias_;
};

/// The bytes that a copy on the device reads and writes in a second.
double copy_bytes_per_s(Gpu& gpu, bool small) {
  const int64_t n = int64_t{1} << (small ? 12 : 28);
  const Tensor from = gpu.make(DType::F32, {n}), to = gpu.make_empty(DType::F32, {n});
  const double seconds = gpu.seconds_of(
      [&] { gpu.compute().copy(to.data, from.data, from.bytes(), CopyKind::Within); });
  check_close(gpu.read(to, n - 1, 1)[0], Gpu::value(n - 1), 0, "a copy");
  gpu.clear();
  return 2 * static_cast<double>(from.bytes()) / seconds;
}

}  // namespace

void measure_memory(const Options& options) {
  Gpu gpu(options);
  const double copy = copy_bytes_per_s(gpu, options.small);
  fmt::print("a copy on the device: {:.1f} GB/s, read and written\n", copy / 1e9);
  fmt::print("{:<24} {:>7} {:>8} {:>10} {:>9} {:>9}\n", "", "rows", "columns", "us", "GB/s",
             "of copy");
  const std::vector<Matrix> shapes = options.small
                                         ? std::vector<Matrix>{{6, 64}}
                                         : std::vector<Matrix>{{16384, 768}, {8192, 4096}};
  for (const Matrix& shape : shapes) {
    MemoryKernels kernels(gpu, shape, copy);
    kernels.norms();
    kernels.elementwise();
    kernels.gradient_and_update();
    kernels.embedding_gradient();
    gpu.clear();
  }
  for (const Matrix& shape : options.small ? shapes : std::vector<Matrix>{{8192, 50257}}) {
    MemoryKernels(gpu, shape, copy).loss();
    gpu.clear();
  }
}

}  // namespace ebb::bench
