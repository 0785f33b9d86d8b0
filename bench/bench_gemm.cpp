// How close do the host's matrix products come to the processor's peak?
//
//   bench_gemm [threads [part of a name]]
//
// Only the products whose name has that part are run. Operands lie as in a training run, in huge
// pages where the system gives them. Shapes are rows x input channels x output channels of a linear
// layer: GPT-2's at 256 and 1024 rows, and its head at 256. Each round measures the peak (registers
// only; of multiply-adds, or of bf16 dot products), the kernel and, in fp32, Eigen in turn; the
// medians are of rounds in which other processes left the cores alone, where there were any. Every
// product is checked against Eigen's, where the processor has the AVX-512 that Eigen is compiled
// for here; elsewhere a line says that none was.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/bench_gemm_eigen.h"
#include "bench/exit_code.h"
#include "bench/peak.h"
#include "device/backends.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double own_cpu_s() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double machine_cpu_s() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0;
  stat >> word >> user >> nice >> system;
  return (user + nice + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

struct Sample {
  double flops_per_s;
  bool quiet;  // others took less than 5 % of a core
};

/// Where others were busy, processor time shared out to the threads stands in for wall time.
Sample measure(double flops, int num_threads, const std::function<void()>& work) {
  const double cpu = own_cpu_s(), others = machine_cpu_s() - cpu, start = now_s();
  int64_t calls = 0;
  do {
    work();
    ++calls;
  } while (now_s() - start < 0.2);
  const double seconds = now_s() - start;
  // The kernel counts in ticks of 10 ms: one of them is noise.
  const bool quiet = machine_cpu_s() - own_cpu_s() - others < 0.05 * seconds + 0.01;
  const double taken = quiet ? seconds : (own_cpu_s() - cpu) / num_threads;
  return {flops * static_cast<double>(calls) / taken, quiet};
}

/// Median of the quiet samples; of all, and marked, where there is none.
class Series {
 public:
  void add(Sample sample) { (sample.quiet ? quiet_ : loud_).push_back(sample.flops_per_s); }
  double median() const {
    std::vector<double> v = quiet_.empty() ? loud_ : quiet_;
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  }
  std::string text() const {
    return fmt::format("{:.1f}{}", median() * 1e-9, quiet_.empty() ? "*" : "");
  }

 private:
  std::vector<double> quiet_, loud_;
};

/// Zeros, in huge pages where the system gives them.
class HugePages {
 public:
  explicit HugePages(size_t bytes) {
    const size_t whole = (bytes + kBytes - 1) / kBytes * kBytes;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kBytes, whole)));
    if (!data_) throw std::bad_alloc();
    madvise(data_.get(), whole, MADV_HUGEPAGE);
    std::memset(data_.get(), 0, whole);
  }
  std::byte* data() const { return data_.get(); }

 private:
  static constexpr size_t kBytes = size_t{2} << 20;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

class InlineStream final : public Stream {
 public:
  explicit InlineStream(Workspace& workspace) : workspace_(workspace) {}
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void submit(const Cost& cost, HostFunction function) override {
    flops_ = cost.flops;
    if (workspace_.bytes < cost.workspace_bytes) {
      memory_ = HugePages(cost.workspace_bytes);
      workspace_ = {memory_.data(), cost.workspace_bytes};
    }
    function();
  }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }
  double flops() const { return flops_; }

 private:
  Workspace& workspace_;
  HugePages memory_{0};
  double flops_ = 0;
};

using Floats = std::vector<float>;

Floats random_floats(int64_t n, uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> spread(-1, 1);
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = spread(random);
  return v;
}

struct Storage {
  HugePages bytes;
  Tensor tensor;

  Storage(DType dtype, Shape shape)
      : bytes(static_cast<size_t>(shape.num_elements()) * size_of(dtype)),
        tensor{bytes.data(), dtype, shape} {}
  static Storage of(DType dtype, Shape shape, const Floats& values) {
    Storage s(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::F32) {
        s.tensor.as<float>()[i] = values[i];
      } else {
        s.tensor.as<BF16>()[i] = BF16(values[i]);
      }
    }
    return s;
  }
  float at(int64_t i) const {
    return tensor.dtype == DType::F32 ? tensor.as<float>()[i]
                                      : static_cast<float>(tensor.as<BF16>()[i]);
  }
};

/// What Eigen is compiled for here.
bool has_peer() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

struct Bench {
  Bench(int num_threads, DType dtype, Arithmetic arithmetic, std::string only)
      : dtype(dtype),
        arithmetic(arithmetic),
        only(std::move(only)),
        team(num_threads),
        stream(workspace),
        kernels(create_host_kernels(team, workspace, arithmetic)) {}

  /// `kernel` runs ours on the stream, `peer` the same with Eigen on one thread (null: none).
  void compare(const std::string& name, const std::function<void()>& kernel,
               const std::function<void()>& peer) {
    kernel();
    const double flops = stream.flops();
    constexpr int64_t kRounds = 2'000'000;
    const double peak_flops = bench::run_at_peak(team, arithmetic, kRounds);
    Series peak, ours, eigen;
    for (int round = 0; round < 7; ++round) {
      peak.add(measure(peak_flops, team.num_threads(),
                       [&] { bench::run_at_peak(team, arithmetic, kRounds); }));
      ours.add(measure(flops, team.num_threads(), kernel));
      if (peer) eigen.add(measure(flops, 1, peer));
    }
    fmt::print("{:34} {:>9} {:>9} {:>7.1f} {:>14}\n", name, peak.text(), ours.text(),
               100 * ours.median() / peak.median(), peer ? eigen.text() : "-");
    std::fflush(stdout);
  }

  void product(int64_t n, int64_t c, int64_t oc) {
    const Floats x = random_floats(n * c, 1), w = random_floats(oc * c, 2),
                 dy = random_floats(n * oc, 3);
    const Storage xs = Storage::of(dtype, {n, c}, x), ws = Storage::of(dtype, {oc, c}, w);
    const Storage dys = Storage::of(dtype, {n, oc}, dy);
    const Storage y(dtype, {n, oc}), dx(dtype, {n, c}), dw(DType::F32, {oc, c});
    Floats peer(static_cast<size_t>(std::max({n * oc, n * c, oc * c})));
    const auto run = [&](const char* what, const Storage& result,
                         const std::function<void()>& kernel, const std::function<void()>& eigen) {
      const std::string_view way = dtype == DType::F32 ? "fp32" : name_of(arithmetic);
      const auto name = fmt::format("{} {} {} {}x{}x{}", what, name_of(dtype), way, n, c, oc);
      if (name.find(only) == std::string::npos) return;
      ++num_products;
      kernel();
      if (has_peer()) {
        eigen();
        check(what, result, peer,
              (dtype == DType::F32 ? 1e-6f : 1e-3f) * static_cast<float>(n + c + oc),
              dtype == DType::F32 ? 0 : 0x1p-8f);
      }
      compare(name, kernel, has_peer() && dtype == DType::F32 ? eigen : std::function<void()>());
    };
    float* to = peer.data();
    run(
        "forward", y, [&] { kernels->linear_forward(stream, y.tensor, xs.tensor, ws.tensor, {}); },
        [&] { eigen_product(to, x.data(), false, w.data(), true, n, oc, c); });
    run(
        "dx", dx,
        [&] {
          kernels->linear_backward_input(stream, dx.tensor, dys.tensor, ws.tensor, Write::Store);
        },
        [&] { eigen_product(to, dy.data(), false, w.data(), false, n, c, oc); });
    run(
        "dw", dw,
        [&] {
          kernels->linear_backward_weight(stream, dw.tensor, {}, dys.tensor, xs.tensor,
                                          Write::Store);
        },
        [&] { eigen_product(to, dy.data(), true, x.data(), false, oc, c, n); });
  }

  static void check(const char* what, const Storage& result, const Floats& peer, float allowed,
                    float relative) {
    for (int64_t i = 0; i < result.tensor.num_elements(); ++i) {
      const float expected = peer[static_cast<size_t>(i)];
      if (!(std::abs(result.at(i) - expected) < allowed + relative * std::abs(expected))) {
        throw NumericError(
            fmt::format("{}: element {} is {}, Eigen says {}", what, i, result.at(i), expected));
      }
    }
  }

  DType dtype;
  Arithmetic arithmetic;
  std::string only;
  int num_products = 0;
  Workspace workspace;
  ThreadTeam team;
  InlineStream stream;
  std::unique_ptr<Kernels> kernels;
};

void run(int num_threads, const std::string& only) {
  fmt::print(
      "GFLOP/s with {} threads; * = by processor time, as other processes were busy in every "
      "round\n",
      num_threads);
  fmt::print("{:34} {:>9} {:>9} {:>7} {:>14}\n", "", "peak", "achieved", "share %",
             "Eigen 1 thread");
  if (!has_peer()) fmt::print("no product is checked: Eigen's need AVX-512, which is not here\n");
  int num_products = 0;
  const auto products = [&](DType dtype, Arithmetic arithmetic) {
    Bench bench(num_threads, dtype, arithmetic, only);
    for (int64_t rows : {256, 1024}) {
      bench.product(rows, 768, 3072);
      bench.product(rows, 3072, 768);
    }
    bench.product(256, 768, 50257);
    num_products += bench.num_products;
  };
  products(DType::F32, Arithmetic::Fp32);
  products(DType::BF16, Arithmetic::Fp32);
  if (this_processor().has_bf16_dot) products(DType::BF16, Arithmetic::Bf16Dot);
  if (num_products > 0) return;
  throw ConfigError(fmt::format(
      "no product has '{}' in its name: they are as 'forward fp32 fp32 256x768x3072', dx, dw",
      only));
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_gemm", [&] {
    ebb::run(argc > 1 ? std::stoi(argv[1]) : ebb::num_usable_cores(), argc > 2 ? argv[2] : "");
    return 0;
  });
}
