// How close are attention, norms, GELU, sums, embedding and loss to the limit of the processor or
// of memory?
//
//   bench_kernels [threads = one per core] [flags of Google Benchmark]
//
// The roof of attention is multiply-adds of fp32 on registers; bound and achieved are
// floating-point operations a second, of which a causal pair counts once. The roof of the others is
// a plain loop with the same reads and writes; bound and achieved are bytes a second. Sizes fit
// into the caches, or do not. Before a kernel is measured, a sample of its results is compared with
// sums in fp64.
//
//   bench_kernels --benchmark_filter='layer norm.*bf16'
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "bench/kernel_cases.h"
#include "system/cores.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ebb::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to = the combined bits of up to three sources, in whole cache lines.
void combine(uint32_t* to, const uint32_t* const* from, int64_t sources, int64_t begin,
             int64_t end) {
  const hn::CappedTag<uint32_t, 16> d;
  const auto streams = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = begin; i < end; i += streams) {
    auto v = sources > 0 ? hn::LoadU(d, from[0] + i) : hn::Set(d, 7u);
    if (sources > 1) v = hn::Xor(v, hn::LoadU(d, from[1] + i));
    if (sources > 2) v = hn::Xor(v, hn::LoadU(d, from[2] + i));
    hn::StoreU(v, d, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb::bench {

HWY_EXPORT(combine);

namespace {

/// The reads and writes of a kernel without its arithmetic.
Work traffic(const KernelCase& kernel, ThreadTeam& team) {
  constexpr int64_t kPiece = 16384;
  const int64_t n = kernel.write->num_words();
  std::array<const uint32_t*, 3> from{};
  std::ranges::transform(kernel.reads, from.begin(), &Storage::words);
  const auto num_reads = static_cast<int64_t>(kernel.reads.size());
  uint32_t* const to = kernel.write->words();
  const auto run = [=, &team] {
    team.for_each((n + kPiece - 1) / kPiece, [&](int64_t i) {
      HWY_DYNAMIC_DISPATCH(combine)
      (to, from.data(), num_reads, i * kPiece, std::min(n, (i + 1) * kPiece));
    });
  };
  return {4.0 * static_cast<double>(n) * static_cast<double>(num_reads + 1), run};
}

void measure(benchmark::State& state, const KernelCase& kernel, HostKernels& kernels) {
  kernel.check();
  kernel.run();  // the peak is measured by the operations of the last call
  const Work roof =
      kernel.write != nullptr ? traffic(kernel, kernels.team) : kernels.peak(Arithmetic::Fp32);
  const double amount = kernel.write != nullptr ? roof.amount : kernels.stream.flops();
  measure_against_roof(state, roof, {amount, kernel.run});
}

/// Registers the kernels of a class of kernel_cases.h. The class is constructed with these
/// arguments when one of the kernels is measured.
template <class Cases, class... Sizes>
void register_cases(const std::shared_ptr<HostKernels>& kernels, const std::string& size,
                    Sizes... sizes) {
  const auto cases = made_once<Cases>(std::ref(*kernels), sizes...);
  for (size_t i = 0; i < std::size(Cases::kNames); ++i) {
    register_benchmark(std::string(Cases::kNames[i]) + "/" + size, [=](benchmark::State& state) {
      measure(state, cases().cases()[i], *kernels);
    });
  }
}

void register_all(Arguments arguments) {
  const auto num_threads = static_cast<int>(number_in(arguments, 0, num_usable_cores()));
  const auto kernels =
      std::make_shared<HostKernels>(num_threads, preferred_arithmetic(this_processor()));
  for (DType dtype : {DType::F32, DType::BF16}) {
    const std::string_view type = name_of(dtype);
    using Sizes = std::array<int64_t, 3>;
    for (const auto& [batch, tokens, heads] :
         {Sizes{4, 64, 12}, Sizes{4, 256, 12}, Sizes{1, 1024, 12}, Sizes{1, 1024, 25}}) {
      register_cases<Attention>(kernels, fmt::format("{}/{}x{}x{}x64", type, batch, tokens, heads),
                                dtype, batch, tokens, heads);
    }
    for (int64_t rows : {256, dtype == DType::F32 ? 24576 : 49152}) {
      const std::string size = fmt::format("{}/{}x768", type, rows);
      register_cases<LayerNorm>(kernels, size, dtype, rows, 768);
      register_cases<Elementwise>(kernels, size, dtype, rows, 768);
      register_cases<Embedding>(kernels, size, dtype, rows);
    }
    for (int64_t rows : {256, 1024}) {
      register_cases<CrossEntropy>(kernels, fmt::format("{}/{}x50257", type, rows), dtype, rows,
                                   50257);
    }
  }
  register_cases<Accumulate>(kernels, "fp32/50257x768", 50257 * 768);
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
#endif
