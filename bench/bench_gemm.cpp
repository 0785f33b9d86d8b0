// How close do the host's matrix products and attention come to the machine's multiply-add peak?
//
//   bench_gemm [threads]
//
// Each round measures the peak (registers only), the kernel and Eigen in turn; the medians are of
// rounds in which other processes left the cores alone, where there were any. Every product
// is checked against Eigen's.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/bench_gemm_eigen.h"
#include "device/host/host_kernels.h"
#include "device/host/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Independent multiply-adds on registers; returns their flops.
double multiply_add(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  // Different starts: the compiler would see through equal ones and keep a single chain.
  const auto start = [&](float x) HWY_ATTR { return hn::Set(d, *sink + x); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4);
  auto s5 = start(5), s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9);
  for (int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b), s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b), s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b);
  }
  const auto all = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                           hn::Add(hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)), hn::Add(s8, s9)));
  *sink = hn::GetLane(all);
  return 20.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(multiply_add);

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

class InlineStream final : public Stream {
 public:
  explicit InlineStream(Workspace& workspace) : workspace_(workspace) {}
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void call(const Cost& cost, HostFunction function) override {
    flops_ = cost.flops;
    if (memory_.size() < cost.workspace_bytes + 64) {
      memory_.resize(cost.workspace_bytes + 64);
      const auto address = reinterpret_cast<uintptr_t>(memory_.data());
      workspace_ = {memory_.data() + (64 - address % 64) % 64, cost.workspace_bytes};
    }
    function();
  }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }
  double flops() const { return flops_; }

 private:
  Workspace& workspace_;
  std::vector<std::byte> memory_;
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
  std::vector<std::byte> bytes;
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

struct Bench {
  explicit Bench(int num_threads)
      : team(num_threads), stream(workspace), kernels(create_host_kernels(team, workspace)) {}

  void run_peak(int64_t rounds) {
    float sinks[256] = {};
    team.for_each(team.num_threads(), [&](int64_t i) {
      HWY_DYNAMIC_DISPATCH(multiply_add)(rounds, &sinks[i % 256]);
    });
  }
  static double per_round() {
    float sink = 0;
    return HWY_DYNAMIC_DISPATCH(multiply_add)(1, &sink);
  }

  /// `kernel` runs ours on the stream, `peer` the same with Eigen on one thread (null: none).
  void compare(const std::string& name, const std::function<void()>& kernel,
               const std::function<void()>& peer) {
    kernel();
    const double flops = stream.flops();
    constexpr int64_t kRounds = 2'000'000;
    const double peak_flops_a_call =
        static_cast<double>(kRounds) * per_round() * team.num_threads();
    Series peak, ours, eigen;
    for (int round = 0; round < 7; ++round) {
      peak.add(measure(peak_flops_a_call, team.num_threads(), [&] { run_peak(kRounds); }));
      ours.add(measure(flops, team.num_threads(), kernel));
      if (peer) eigen.add(measure(flops, 1, peer));
    }
    fmt::print("{:34} {:>9} {:>9} {:>7.1f} {:>14}\n", name, peak.text(), ours.text(),
               100 * ours.median() / peak.median(), peer ? eigen.text() : "-");
    std::fflush(stdout);
  }

  void product(int64_t n, int64_t c, int64_t oc, DType dtype) {
    const Floats x = random_floats(n * c, 1), w = random_floats(oc * c, 2),
                 dy = random_floats(n * oc, 3);
    const Storage xs = Storage::of(dtype, {n, c}, x), ws = Storage::of(dtype, {oc, c}, w);
    const Storage dys = Storage::of(dtype, {n, oc}, dy);
    const Storage y(dtype, {n, oc}), dx(dtype, {n, c}), dw(DType::F32, {oc, c});
    Floats peer(static_cast<size_t>(std::max({n * oc, n * c, oc * c})));
    const bool has_peer = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    const auto run = [&](const char* what, const Storage& result,
                         const std::function<void()>& kernel, const std::function<void()>& eigen) {
      kernel();
      if (has_peer) {
        eigen();
        check(what, result, peer, dtype == DType::F32 ? 2e-3f : 2.0f,
              dtype == DType::F32 ? 0 : 0x1p-8f);
      }
      compare(fmt::format("{} {} {}x{}x{}", what, name_of(dtype), n, c, oc), kernel,
              has_peer ? eigen : std::function<void()>());
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

  void attention(int64_t b, int64_t t, int64_t heads, int64_t head_size, DType dtype) {
    const int64_t c = heads * head_size;
    const auto random = [&](int64_t columns) {
      return Storage::of(dtype, {b, t, columns}, random_floats(b * t * columns, 4));
    };
    const Storage qkv = random(3 * c), dout = random(c), out(dtype, {b, t, c}),
                  dqkv(dtype, {b, t, 3 * c});
    const Storage log_sum_exp(DType::F32, {b, heads, t});
    const AttentionShape shape{.num_heads = heads};
    const std::string size = fmt::format("{} {}x{}x{}x{}", name_of(dtype), b, t, heads, head_size);
    compare("attention " + size,
            [&] {
              kernels->attention_forward(stream, out.tensor, log_sum_exp.tensor, qkv.tensor, shape);
            },
            {});
    compare("attention backward " + size,
            [&] {
              kernels->attention_backward(stream, dqkv.tensor, dout.tensor, qkv.tensor, out.tensor,
                                          log_sum_exp.tensor, shape);
            },
            {});
  }

  Workspace workspace;
  ThreadTeam team;
  InlineStream stream;
  std::unique_ptr<Kernels> kernels;
};

void run(int num_threads) {
  Bench bench(num_threads);
  fmt::print(
      "GFLOP/s with {} threads, {}; * = by processor time, as other processes were busy in every "
      "round\n",
      num_threads, hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()));
  fmt::print("{:34} {:>9} {:>9} {:>7} {:>14}\n", "", "peak", "achieved", "share %",
             "Eigen 1 thread");
  for (DType dtype : {DType::F32, DType::BF16}) {
    bench.product(1024, 768, 3072, dtype);
    bench.product(1024, 3072, 768, dtype);
    bench.attention(4, 256, 12, 64, dtype);
    bench.attention(1, 1024, 12, 64, dtype);
  }
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) {
  try {
    ebb::run(argc > 1 ? std::stoi(argv[1]) : ebb::num_usable_cores());
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_gemm: {}\n", e.what());
    return 1;
  }
  return 0;
}
#endif
