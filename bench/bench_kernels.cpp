// How close are attention, norms, GELU, sums, embedding and loss to what bounds them?
//
//   bench_kernels [threads] [--only TEXT]
//
// Attention is bounded by multiply-adds on registers (GFLOP/s; a causal pair counts once), the rest
// by a plain loop with the same reads and writes of as many bytes (GB/s), at sizes in and out of
// the caches. Bound and kernel take turns in one process; the medians are of the samples in which
// other processes left the cores alone, where there were any, else by processor time and marked
// "*".
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/load_gate.h"
#include "bench/peak.h"
#include "device/backends.h"
#include "system/cores.h"
#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ebb::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to = the bits of up to three sources combined, over whole cache lines.
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

constexpr int kRounds = 7;
constexpr double kSample_s = 0.12;

double processor_s() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

struct Sample {
  double seconds;  // a call
  bool quiet;
};

/// Where others were busy, processor time shared out to the threads stands in for wall time.
Sample measure(int num_threads, const std::function<void()>& work) {
  const double processor = processor_s();
  const LoadGate gate;
  const auto start = Clock::now();
  int64_t calls = 0;
  do {
    work();
    ++calls;
  } while (seconds_since(start) < kSample_s);
  const double wall = seconds_since(start);
  // The kernel counts in ticks of 10 ms: one of them is noise.
  const bool quiet = gate.other_cores() * wall < 0.04 * wall + 0.01;
  const double taken = quiet ? wall : (processor_s() - processor) / num_threads;
  return {taken / static_cast<double>(calls), quiet};
}

/// Median of the quiet samples; of all, and marked, where there is none.
class Series {
 public:
  void add(Sample sample) { (sample.quiet ? quiet_ : loud_).push_back(sample.seconds); }
  double seconds() const {
    std::vector<double> v = quiet_.empty() ? loud_ : quiet_;
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  }
  std::string rate(double amount) const {
    return fmt::format("{:.1f}{}", amount / seconds() * 1e-9, quiet_.empty() ? "*" : "");
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
  void submit(const Cost& cost, HostFunction function) override {
    flops_ = cost.flops;
    if (memory_.size() < cost.workspace_bytes + 64) {
      memory_.resize(cost.workspace_bytes + 64);
      const auto address = reinterpret_cast<uintptr_t>(memory_.data());
      workspace_ = {memory_.data() + (64 - address % 64) % 64, memory_.size() - 64};
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

/// A tensor in pages of its own, huge ones where the system gives them, ending on a cache line.
class Storage {
 public:
  Storage(DType dtype, Shape shape)
      : bytes_((static_cast<size_t>(shape.num_elements()) * size_of(dtype) + 63) / 64 * 64) {
    void* const data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, bytes_, MADV_HUGEPAGE);
    std::memset(data, 0, bytes_);
    tensor_ = {static_cast<std::byte*>(data), dtype, shape};
  }
  /// Evenly spread in [-range, range].
  Storage(DType dtype, Shape shape, double range, uint32_t seed = 1) : Storage(dtype, shape) {
    std::minstd_rand random(seed);
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const auto spread = static_cast<double>(random()) / std::minstd_rand::max() * 2 - 1;
      const auto value = static_cast<float>(spread * range);
      if (dtype == DType::F32) {
        tensor_.as<float>()[i] = value;
      } else {
        tensor_.as<BF16>()[i] = BF16(value);
      }
    }
  }
  ~Storage() { munmap(tensor_.data, bytes_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  operator Tensor() const { return tensor_; }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(tensor_.data); }
  int64_t num_words() const { return static_cast<int64_t>(bytes_ / 4); }

 private:
  size_t bytes_;
  Tensor tensor_;
};

struct Indices : Storage {
  Indices(int64_t n, int64_t limit) : Storage(DType::I32, {n}) {
    std::minstd_rand random(3);
    for (int64_t i = 0; i < n; ++i) {
      Tensor(*this).as<int32_t>()[i] = static_cast<int32_t>(static_cast<int64_t>(random()) % limit);
    }
  }
};

/// What memory must do at least for a kernel: read these, write that.
struct Traffic {
  std::vector<const Storage*> reads;
  const Storage* write;

  double bytes() const { return static_cast<double>(write->num_words()) * 4 * streams(); }
  double streams() const { return static_cast<double>(reads.size()) + 1; }
};

class Bench {
 public:
  Bench(int num_threads, std::string only)
      : team_(num_threads),
        stream(workspace_),
        kernels(create_host_kernels(team_, workspace_, preferred_arithmetic(this_processor()))),
        only_(std::move(only)) {}

  bool wants(const std::string& name) const { return name.find(only_) != std::string::npos; }
  bool wants_any(const std::vector<std::string>& names, const std::string& size) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return wants(name + size); });
  }

  void against_flops(const std::string& name, const std::function<void()>& kernel) {
    if (!wants(name)) return;
    kernel();
    constexpr int64_t kTurns = 1'000'000;
    const double peak_flops = run_at_peak(team_, Arithmetic::Fp32, 1) * kTurns;
    compare(name, stream.flops(), kernel, peak_flops,
            [&] { run_at_peak(team_, Arithmetic::Fp32, kTurns); });
  }

  void against_memory(const std::string& name, const Traffic& traffic,
                      const std::function<void()>& kernel) {
    if (!wants(name)) return;
    compare(name, traffic.bytes(), kernel, traffic.bytes(), [&] { move(traffic); });
  }

 private:
  void move(const Traffic& traffic) {
    constexpr int64_t kPiece = 16384;
    const uint32_t* from[3] = {};
    for (size_t i = 0; i < traffic.reads.size(); ++i) from[i] = traffic.reads[i]->words();
    const int64_t n = traffic.write->num_words();
    team_.for_each((n + kPiece - 1) / kPiece, [&](int64_t i) {
      HWY_DYNAMIC_DISPATCH(combine)
      (traffic.write->words(), from, static_cast<int64_t>(traffic.reads.size()), i * kPiece,
       std::min(n, (i + 1) * kPiece));
    });
  }

  void compare(const std::string& name, double work, const std::function<void()>& kernel,
               double bound_work, const std::function<void()>& bound) {
    Series roof, ours;
    for (int round = 0; round < kRounds; ++round) {
      roof.add(measure(team_.num_threads(), bound));
      ours.add(measure(team_.num_threads(), kernel));
    }
    const double share = work / ours.seconds() / (bound_work / roof.seconds());
    fmt::print("{:44} {:>9} {:>9} {:>7.1f} {:>10.1f}\n", name, roof.rate(bound_work),
               ours.rate(work), 100 * share, ours.seconds() * 1e6);
    std::fflush(stdout);
  }

  Workspace workspace_;
  ThreadTeam team_;

 public:
  InlineStream stream;
  std::unique_ptr<Kernels> kernels;

 private:
  std::string only_;
};

void attention(Bench& bench, DType dtype, int64_t b, int64_t t, int64_t heads) {
  const int64_t c = heads * 64;
  const std::string size = fmt::format(" {} {}x{}x{}x64", name_of(dtype), b, t, heads);
  const std::string forward = "attention" + size, backward = "attention backward" + size;
  if (!bench.wants(forward) && !bench.wants(backward)) return;
  const Storage qkv(dtype, {b, t, 3 * c}, 1), dout(dtype, {b, t, c}, 1, 2), out(dtype, {b, t, c});
  const Storage dqkv(dtype, {b, t, 3 * c}), log_sum_exp(DType::F32, {b, heads, t});
  const AttentionShape shape{.num_heads = heads};
  const auto attend = [&] {
    bench.kernels->attention_forward(bench.stream, out, log_sum_exp, qkv, shape);
  };
  attend();
  bench.against_flops(forward, attend);
  bench.against_flops(backward, [&] {
    bench.kernels->attention_backward(bench.stream, dqkv, dout, qkv, out, log_sum_exp, shape);
  });
}

void norms(Bench& bench, DType dtype, int64_t n, int64_t c) {
  const std::string size = fmt::format(" {} {}x{}", name_of(dtype), n, c);
  if (!bench.wants_any({"layer norm", "layer norm backward", "layer norm backward, adding"}, size))
    return;
  const Storage x(dtype, {n, c}, 1), y(dtype, {n, c}), w(dtype, {c}, 1), b(dtype, {c}, 1);
  const Storage mean(DType::F32, {n}), rstd(DType::F32, {n}), dw(DType::F32, {c}),
      db(DType::F32, {c}), dx(dtype, {n, c});
  Kernels& kernels = *bench.kernels;
  const auto forward = [&] {
    kernels.layer_norm_forward(bench.stream, y, mean, rstd, x, w, b, 1e-5f);
  };
  const auto backward = [&](Write write) {
    kernels.layer_norm_backward(bench.stream, dx, write, dw, db, Write::Store, y, x, w, mean, rstd);
  };
  forward();
  bench.against_memory("layer norm" + size, {{&x}, &y}, forward);
  bench.against_memory("layer norm backward" + size, {{&x, &y}, &dx},
                       [&] { backward(Write::Store); });
  bench.against_memory("layer norm backward, adding" + size, {{&x, &y, &dx}, &dx},
                       [&] { backward(Write::Add); });
}

void elementwise(Bench& bench, DType dtype, int64_t n, int64_t c) {
  const std::string size = fmt::format(" {} {}x{}", name_of(dtype), n, c);
  if (!bench.wants_any({"GELU", "GELU backward", "add"}, size)) return;
  const Storage x(dtype, {n, c}, 4), dy(dtype, {n, c}, 1, 2), y(dtype, {n, c});
  Kernels& kernels = *bench.kernels;
  constexpr Activation kGelu = Activation::GeluTanh;
  bench.against_memory("GELU" + size, {{&x}, &y},
                       [&] { kernels.activation_forward(bench.stream, y, x, kGelu); });
  bench.against_memory("GELU backward" + size, {{&x, &dy}, &y}, [&] {
    kernels.activation_backward(bench.stream, y, dy, x, kGelu, Write::Store);
  });
  bench.against_memory("add" + size, {{&x, &dy}, &y}, [&] { kernels.add(bench.stream, y, x, dy); });
}

void accumulate(Bench& bench, int64_t n) {
  const std::string name = fmt::format("accumulate {} {}", name_of(DType::F32), n);
  if (!bench.wants(name)) return;
  const Storage x(DType::F32, {n}), y(DType::F32, {n});
  bench.against_memory(name, {{&x, &y}, &y},
                       [&] { bench.kernels->accumulate(bench.stream, y, x); });
}

void loss(Bench& bench, DType dtype, int64_t n, int64_t classes) {
  const std::string size = fmt::format(" {} {}x{}", name_of(dtype), n, classes);
  if (!bench.wants("cross-entropy" + size)) return;
  // Gradients become the next call's logits: they stay finite, and cost what logits cost.
  const Storage logits(dtype, {n, classes}, 4), losses(DType::F32, {n});
  const Indices targets(n, classes);
  bench.against_memory("cross-entropy" + size, {{&logits}, &logits}, [&] {
    bench.kernels->cross_entropy(bench.stream, losses, logits, targets, 0.01f);
  });
}

void embedding(Bench& bench, DType dtype, int64_t n) {
  constexpr int64_t kRows = 50257, kColumns = 768;
  const std::string size = fmt::format(" {} {} of {}x{}", name_of(dtype), n, kRows, kColumns);
  if (!bench.wants_any({"embedding", "embedding backward"}, size)) return;
  const Storage table(dtype, {kRows, kColumns}), positions(dtype, {n, kColumns});
  const Storage y(dtype, {n, kColumns}), dtable(DType::F32, {kRows, kColumns});
  const Indices tokens(n, kRows), places(n, n);
  bench.against_memory("embedding" + size, {{&positions}, &y}, [&] {
    bench.kernels->embedding_forward(bench.stream, y, tokens, places, table, positions);
  });
  bench.against_memory("embedding backward" + size, {{}, &dtable}, [&] {
    bench.kernels->embedding_backward(bench.stream, dtable, y, tokens, Write::Store);
  });
}

void roofs(Bench& bench) {
  fmt::print("{:44} {:>9} {:>9} {:>7} {:>10}\n", "GFLOP/s (attention) or GB/s", "bound", "achieved",
             "share %", "us");
  for (DType dtype : {DType::F32, DType::BF16}) {
    for (const auto& [b, t, heads] : std::vector<std::array<int64_t, 3>>{
             {4, 64, 12}, {4, 256, 12}, {1, 1024, 12}, {1, 1024, 25}}) {
      attention(bench, dtype, b, t, heads);
    }
    const int64_t large = dtype == DType::F32 ? 24576 : 49152;
    for (int64_t n : {int64_t{256}, large}) {
      norms(bench, dtype, n, 768);
      elementwise(bench, dtype, n, 768);
      embedding(bench, dtype, n);
    }
    for (int64_t n : {256, 1024}) loss(bench, dtype, n, 50257);
  }
  accumulate(bench, int64_t{50257} * 768);
}

void run(const std::vector<std::string>& arguments) {
  int num_threads = num_usable_cores();
  std::string only;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--only" && i + 1 < arguments.size()) {
      only = arguments[++i];
    } else {
      num_threads = std::stoi(arguments[i]);
    }
  }
  Bench bench(num_threads, only);
  fmt::print("{} threads, {}; * = by processor time, as other processes were busy\n", num_threads,
             hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()));
  roofs(bench);
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_kernels", [&] {
    ebb::bench::run({argv + 1, argv + argc});
    return 0;
  });
}
#endif
