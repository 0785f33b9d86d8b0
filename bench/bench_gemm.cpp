// How close do the host's matrix products come to the peak of the processor?
//
//   bench_gemm [threads = one per core] [flags of Google Benchmark]
//
// A name has the pass of a linear layer (its forward, or the gradient of its input, dx, or of its
// weight, dw), the type, and rows x inputs x outputs; shapes are GPT-2's. Products of bf16 use the
// processor's dot products (bf16-dot), or widen to fp32. The roof is multiply-adds, or dot
// products of bf16 pairs, on registers alone. Bound and achieved are floating-point operations a
// second. "Eigen" is the same product in fp32 by Eigen on one thread, against one thread's peak; it
// needs AVX-512. Before a product is measured, a sample of its elements is compared with sums in
// fp64.
//
//   bench_gemm --benchmark_filter=forward/fp32
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "bench/bench_gemm_eigen.h"
#include "bench/kernel_setup.h"
#include "system/cores.h"

namespace ebb::bench {
namespace {

struct Layer {
  int64_t rows, inputs, outputs;
};
constexpr Layer kLayers[] = {
    {256, 768, 3072}, {256, 3072, 768}, {1024, 768, 3072}, {1024, 3072, 768}, {256, 768, 50257}};

enum class ForwardSpec { Forward, InputGradient, WeightGradient };
constexpr ForwardSpec kPasses[] = {ForwardSpec::Forward, ForwardSpec::InputGradient,
                                   ForwardSpec::WeightGradient};

const char* name_of(ForwardSpec pass) {
  return pass == ForwardSpec::Forward         ? "forward"
         : pass == ForwardSpec::InputGradient ? "dx"
                                              : "dw";
}

std::string name_of(const Layer& layer) {
  return fmt::format("{}x{}x{}", layer.rows, layer.inputs, layer.outputs);
}

/// to (m, n) = a b over k. A transposed matrix is stored with its columns as rows.
struct Product {
  const Storage *a, *b, *to;
  bool a_transposed, b_transposed;
  int64_t m, n, k;

  double at(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l) {
      sum +=
          (*a)[a_transposed ? l * m + i : i * k + l] * (*b)[b_transposed ? j * k + l : l * n + j];
    }
    return sum;
  }
};

/// The operands and results of all three passes.
class Linear {
 public:
  Linear(const Layer& layer, DType dtype)
      : layer_(layer),
        x_(dtype, {layer.rows, layer.inputs}, 1, 1),
        w_(dtype, {layer.outputs, layer.inputs}, 1, 2),
        dy_(dtype, {layer.rows, layer.outputs}, 1, 3),
        y_(dtype, {layer.rows, layer.outputs}),
        dx_(dtype, {layer.rows, layer.inputs}),
        dw_(DType::F32, {layer.outputs, layer.inputs}) {}

  void run(ForwardSpec pass, HostKernels& kernels) const {
    if (pass == ForwardSpec::Forward) {
      kernels->submit(kernels.stream, LinearForward{y_, x_, w_, {}});
    } else if (pass == ForwardSpec::InputGradient) {
      kernels->submit(kernels.stream, LinearBackwardInput{dx_, dy_, w_, Write::Store});
    } else {
      kernels->submit(kernels.stream, LinearBackwardWeight{dw_, {}, dy_, x_, Write::Store});
    }
  }
  void run_eigen(ForwardSpec pass) const {
    const Product p = product(pass);
    const auto floats = [](const Storage& s) { return s.tensor().as<float>(); };
    eigen_product(floats(*p.to), floats(*p.a), p.a_transposed, floats(*p.b), p.b_transposed, p.m,
                  p.n, p.k);
  }
  /// Throws NumericError if an element of the sample is wrong.
  void check(ForwardSpec pass) const {
    const Product p = product(pass);
    const double tolerance = 2e-6 * std::sqrt(static_cast<double>(p.k)) * 4;
    for (int64_t i = 0; i < p.m; i += p.m / 7) {
      for (int64_t j = 0; j < p.n; j += p.n / 11) {
        const double found = (*p.to)[i * p.n + j], expected = p.at(i, j);
        const double rounding = p.to->tensor().dtype == DType::F32 ? 0 : 0x1p-8;
        if (std::abs(found - expected) <= tolerance + rounding * std::abs(expected)) continue;
        throw NumericError(fmt::format("{}: element ({}, {}) is {}, it should be {}", name_of(pass),
                                       i, j, found, expected));
      }
    }
  }

 private:
  Product product(ForwardSpec pass) const {
    const auto& [n, c, oc] = layer_;
    if (pass == ForwardSpec::Forward) return {&x_, &w_, &y_, false, true, n, oc, c};
    if (pass == ForwardSpec::InputGradient) return {&dy_, &w_, &dx_, false, false, n, c, oc};
    return {&dy_, &x_, &dw_, true, false, oc, c, n};
  }

  const Layer layer_;
  Storage x_, w_, dy_, y_, dx_, dw_;
};

void measure(benchmark::State& state, ForwardSpec pass, const Linear& linear, HostKernels& kernels,
             Arithmetic arithmetic) {
  const auto run = [&] { linear.run(pass, kernels); };
  run();
  linear.check(pass);
  measure_against_roof(state, kernels.peak(arithmetic), {kernels.stream.flops(), run});
}

void measure_eigen(benchmark::State& state, ForwardSpec pass, const Linear& linear,
                   HostKernels& single) {
  linear.run(pass, single);
  const double flops = single.stream.flops();
  const auto run = [&] { linear.run_eigen(pass); };
  run();
  linear.check(pass);
  measure_against_roof(state, single.peak(Arithmetic::Fp32), {flops, run});
}

/// Does this processor have the instructions for which Eigen's product is compiled?
bool has_eigen() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

void register_products(DType dtype, Arithmetic arithmetic, int num_threads) {
  const auto kernels = made_once<HostKernels>(num_threads, arithmetic);
  const auto single = made_once<HostKernels>(1, arithmetic);
  const std::string type =
      dtype == DType::F32 ? "fp32" : fmt::format("{}/{}", name_of(dtype), name_of(arithmetic));
  for (const Layer& layer : kLayers) {
    const auto linear = made_once<Linear>(layer, dtype);
    for (ForwardSpec pass : kPasses) {
      const std::string product = fmt::format("{}/{}/{}", name_of(pass), type, name_of(layer));
      register_benchmark(product, [=](benchmark::State& state) {
        measure(state, pass, linear(), kernels(), arithmetic);
      });
      if (dtype != DType::F32 || !has_eigen()) continue;
      register_benchmark("Eigen/" + product, [=](benchmark::State& state) {
        measure_eigen(state, pass, linear(), single());
      });
    }
  }
}

void register_all(Arguments arguments) {
  const auto num_threads = static_cast<int>(number_in(arguments, 0, num_usable_cores()));
  register_products(DType::F32, Arithmetic::Fp32, num_threads);
  register_products(DType::BF16, Arithmetic::Fp32, num_threads);
  if (!this_processor().has_bf16_dot) return;
  register_products(DType::BF16, Arithmetic::Bf16Dot, num_threads);
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
