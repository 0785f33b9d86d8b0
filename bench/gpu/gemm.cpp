// TFLOP/s of linear layers in bf16 with fp32 sums: the forward with bias, the gradient of the input
// and the gradient of the weight. Then the times of the epilogues of the backward, against those of
// products without them.
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "bench/gpu/gpu.h"

namespace ebb::bench {
namespace {

struct Layer {
  const char* name;
  int64_t rows, inputs, outputs;
  int64_t padding = 0;  // columns of y and dy after the outputs
};

constexpr Layer kLayers[] = {
    {"GPT-2 qkv", 8192, 768, 2304},
    {"GPT-2 up", 8192, 768, 3072},
    {"GPT-2 down", 8192, 3072, 768},
    {"GPT-2 head", 2560, 768, 50257, 47},
    {"  of a multiple of 64", 2560, 768, 50304},
    {"  of a multiple of 8", 2560, 768, 50256, 48},
    {"  without padding", 2560, 768, 50257},
    {"GPT-3 2.7B qkv", 8192, 2560, 7680},
    {"GPT-3 2.7B up", 8192, 2560, 10240},
    {"GPT-3 6.7B qkv", 8192, 4096, 12288},
    {"GPT-3 6.7B projection", 8192, 4096, 4096},
    {"GPT-3 6.7B up", 8192, 4096, 16384},
    {"GPT-3 6.7B down", 8192, 16384, 4096},
    {"GPT-3 13B up", 8192, 5120, 20480},
    {"Llama 8B qkv", 8192, 4096, 6144},
    {"Llama 8B gate and up", 8192, 4096, 28672},
    {"Llama 8B down", 8192, 14336, 4096},
};
constexpr Layer kSmallLayers[] = {{"small", 33, 40, 24}, {"padded", 33, 40, 21, 3}};

/// The second layers of MLPs, whose inputs are activations.
constexpr Layer kDownLayers[] = {
    {"GPT-2 down", 8192, 3072, 768},
    {"GPT-3 2.7B down", 8192, 10240, 2560},
    {"GPT-3 6.7B down", 8192, 16384, 4096},
    {"GPT-3 13B down", 8192, 20480, 5120},
};
constexpr Layer kSmallDownLayers[] = {{"small", 33, 40, 24}};

/// The tolerance for a value that is rounded once to bf16, after fp32 sums that are almost exact.
double tolerance(double value, DType dtype) {
  return (dtype == DType::BF16 ? std::abs(value) / 256 : std::abs(value) * 1e-5) + 1e-3;
}

/// Checks some elements of y[i][j] = sum over k of a(i, k) b(j, k).
template <class A, class B>
void verify(Gpu& gpu, const Tensor& y, int64_t columns, int64_t depth, const A& a, const B& b,
            const char* what) {
  for (int64_t place = 0; place < 5; ++place) {
    const int64_t i = place * (y.rows() - 1) / 4, j = (4 - place) * (columns - 1) / 4;
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) sum += a(i, k) * b(j, k);
    check_close(gpu.read(y, i * y.columns() + j, 1)[0], sum, tolerance(sum, y.dtype),
                fmt::format("{} at {}, {}", what, i, j));
  }
}

void measure(Gpu& gpu, const Layer& layer, double peak) {
  const auto [name, rows, inputs, outputs, padding] = layer;
  const int64_t columns = outputs + padding;
  const Tensor x = gpu.make(DType::BF16, {rows, inputs});
  const Tensor w = gpu.make(DType::BF16, {outputs, inputs});
  const Tensor bias = gpu.make(DType::BF16, {outputs});
  const Tensor dy = gpu.make(DType::BF16, {rows, columns});
  const Tensor y = gpu.make_empty(DType::BF16, {rows, columns});
  const Tensor dx = gpu.make_empty(DType::BF16, {rows, inputs});
  const Tensor dw = gpu.make_empty(DType::F32, {outputs, inputs});
  Kernels& kernels = gpu.kernels();
  const double forward_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), LinearForward{y, x, w, bias});
  });
  const double input_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), LinearBackwardInput{dx, dy, w, Write::Store});
  });
  const double weight_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), LinearBackwardWeight{dw, {}, dy, x, Write::Store});
  });

  const auto at = [](int64_t columns) {
    return [columns](int64_t i, int64_t k) -> double { return Gpu::value(i * columns + k); };
  };
  const auto across = [](int64_t columns) {
    return [columns](int64_t i, int64_t k) -> double { return Gpu::value(k * columns + i); };
  };
  // The bias is one more term of the sum, multiplied by 1.
  verify(
      gpu, y, outputs, inputs + 1,
      [&](int64_t i, int64_t k) -> double { return k == inputs ? 1 : Gpu::value(i * inputs + k); },
      [&](int64_t j, int64_t k) -> double { return Gpu::value(k == inputs ? j : j * inputs + k); },
      name);
  verify(gpu, dx, inputs, outputs, at(columns), across(inputs), name);
  verify(gpu, dw, inputs, rows, across(columns), across(inputs), name);

  const double flops =
      2.0 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
  fmt::print("{:<22} {:>6} {:>6} {:>6} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.1f} %\n", name, rows, inputs,
             outputs, flops / forward_s / 1e12, flops / input_s / 1e12, flops / weight_s / 1e12,
             100 * 3 * flops / (forward_s + input_s + weight_s) / peak);
  std::fflush(stdout);
  gpu.clear();
}

/// The slope of GELU with the tanh formula.
double gelu_slope(double x) {
  constexpr double kScale = 0.7978845608028654, kCubic = 0.044715;  // kScale: sqrt(2 / pi)
  const double tanh = std::tanh(kScale * (x + kCubic * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * kScale * (1 + 3 * kCubic * x * x);
}

/// The gradient of the weight, and the sums of the columns of dy beside it (BGRADB).
struct BiasTimes {
  double with_s, without_s;
};
BiasTimes measure_bias_gradient(Gpu& gpu, const Layer& layer, const Tensor& dy) {
  const Tensor x = gpu.make(DType::BF16, {layer.rows, layer.inputs});
  const Tensor dw = gpu.make_empty(DType::F32, {layer.outputs, layer.inputs});
  const Tensor dbias = gpu.make_empty(DType::F32, {layer.outputs});
  const auto seconds_with = [&](const Tensor& sums) {
    return gpu.seconds_of([&] {
      gpu.kernels().submit(gpu.compute(), LinearBackwardWeight{dw, sums, dy, x, Write::Store});
    });
  };
  const BiasTimes times{.with_s = seconds_with(dbias), .without_s = seconds_with({})};
  for (const int64_t j : {int64_t{0}, layer.outputs / 2, layer.outputs - 1}) {
    double sum = 0;
    for (int64_t i = 0; i < layer.rows; ++i) sum += Gpu::value(i * layer.outputs + j);
    check_close(gpu.read(dbias, j, 1)[0], sum, tolerance(sum, DType::F32),
                fmt::format("{}: the gradient of bias {}", layer.name, j));
  }
  return times;
}

/// A product with a residual, and both as two kernels.
struct ResidualTimes {
  double together_s, apart_s;
};
ResidualTimes measure_residual(Gpu& gpu, const Layer& layer) {
  const auto [name, rows, inputs, outputs, padding] = layer;
  const Tensor x = gpu.make(DType::BF16, {rows, inputs});
  const Tensor w = gpu.make(DType::BF16, {outputs, inputs});
  const Tensor bias = gpu.make(DType::BF16, {outputs});
  const Tensor residual = gpu.make(DType::BF16, {rows, outputs});
  const Tensor y = gpu.make_empty(DType::BF16, {rows, outputs});
  Kernels& kernels = gpu.kernels();
  const double apart_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), LinearForward{y, x, w, bias});
    kernels.submit(gpu.compute(), Add{y, y, residual});
  });
  const double together_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), LinearForward{y, x, w, bias, residual});
  });
  for (const int64_t i : {int64_t{0}, rows / 2, rows - 1}) {
    const int64_t j = i % outputs;
    double sum = Gpu::value(j) + Gpu::value(i * outputs + j);
    for (int64_t k = 0; k < inputs; ++k) {
      sum += static_cast<double>(Gpu::value(i * inputs + k)) * Gpu::value(j * inputs + k);
    }
    // The product may be rounded before the residual is added.
    check_close(gpu.read(y, i * outputs + j, 1)[0], sum, 2 * tolerance(sum, DType::BF16),
                fmt::format("{} with a residual at {}, {}", name, i, j));
  }
  return {together_s, apart_s};
}

/// A product with the slope of GELU (DGELU), and both as two kernels. Where the backend does not
/// compute them together (cuda/linear.h), the two times are equal.
void measure_epilogues(Gpu& gpu, const Layer& layer) {
  const auto [name, rows, inputs, outputs, padding] = layer;
  const Tensor before = gpu.make(DType::BF16, {rows, inputs});
  const Tensor w = gpu.make(DType::BF16, {outputs, inputs});
  const Tensor dy = gpu.make(DType::BF16, {rows, outputs});
  const Tensor dbefore = gpu.make_empty(DType::BF16, {rows, inputs});
  const ActivationLinearBackward together{dbefore, dy, w, before, Activation::GeluTanh};
  const auto [product, slope] = together.split();
  const double two_s = gpu.seconds_of([&] {
    gpu.kernels().submit(gpu.compute(), product);
    gpu.kernels().submit(gpu.compute(), slope);
  });
  const double one_s = gpu.seconds_of([&] { gpu.kernels().submit(gpu.compute(), together); });
  for (int64_t place = 0; place < 5; ++place) {
    const int64_t i = place * (rows - 1) / 4, j = (4 - place) * (inputs - 1) / 4;
    double sum = 0;
    for (int64_t k = 0; k < outputs; ++k) {
      sum += static_cast<double>(Gpu::value(i * outputs + k)) * Gpu::value(k * inputs + j);
    }
    const double expected = sum * gelu_slope(Gpu::value(i * inputs + j));
    // The product may be rounded before the slope multiplies it.
    check_close(gpu.read(dbefore, i * inputs + j, 1)[0], expected,
                2 * tolerance(expected, DType::BF16), fmt::format("{} at {}, {}", name, i, j));
  }
  const BiasTimes bias = measure_bias_gradient(gpu, layer, dy);
  const ResidualTimes residual = measure_residual(gpu, layer);
  fmt::print("{:<22} {:>6} {:>6} {:>6} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n",
             name, rows, inputs, outputs, 1e3 * one_s, 1e3 * two_s, 1e3 * bias.with_s,
             1e3 * bias.without_s, 1e3 * residual.together_s, 1e3 * residual.apart_s);
  std::fflush(stdout);
  gpu.clear();
}

}  // namespace

void measure_products(const Options& options) {
  Gpu gpu(options);
  const double peak = product_peak(gpu, options.small);
  fmt::print("8192 x 8192 x 8192: {:.1f} TFLOP/s, of which the share is counted\n", peak / 1e12);
  fmt::print("{:<22} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "TFLOP/s", "rows", "in", "out",
             "forward", "input", "weight", "share");
  const std::span<const Layer> layers =
      options.small ? std::span<const Layer>(kSmallLayers) : kLayers;
  measure_each(layers, [&](const Layer& layer) { measure(gpu, layer, peak); });
  fmt::print("{:<22} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "rows", "in",
             "out", "slope", "apart", "dbias", "without", "residual", "apart");
  const std::span<const Layer> down =
      options.small ? std::span<const Layer>(kSmallDownLayers) : kDownLayers;
  measure_each(down, [&](const Layer& layer) { measure_epilogues(gpu, layer); });
}

}  // namespace ebb::bench
