// The bandwidth of pinned copies between host and GPU: each direction alone, both together, and
// while the cores run AdamW. Also the time of pinning.
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/gpu/gpu.h"
#include "cpu_adam/adamw.h"
#include "scheduler/plan/simulate.h"
#include "system/clock.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

/// Chunks in host memory and on the device, and the streams that copy between them.
class Link {
 public:
  Link(Device& device, size_t chunk_bytes, size_t num_chunks)
      : chunk_bytes_(chunk_bytes),
        num_chunks_(num_chunks),
        up_(device.allocate(MemoryKind::Pinned, chunk_bytes * num_chunks, "up")),
        down_(device.allocate(MemoryKind::Pinned, chunk_bytes * num_chunks, "down")),
        there_(device.allocate(MemoryKind::Device, chunk_bytes * num_chunks, "loaded")),
        back_(device.allocate(MemoryKind::Device, chunk_bytes * num_chunks, "stored")),
        load_(device.create_stream(StreamKind::Load)),
        store_(device.create_stream(StreamKind::Store)) {
    auto* const words = reinterpret_cast<uint32_t*>(up_.data());
    for (size_t i = 0; i < up_.bytes() / 4; ++i) words[i] = static_cast<uint32_t>(i) * 2654435761u;
    load_->copy(back_.data(), up_.data(), up_.bytes(), CopyKind::Load);
    load_->synchronize();
  }

  void load() {
    for (size_t i = 0; i < num_chunks_; ++i) {
      load_->copy(there_.data() + i * chunk_bytes_, up_.data() + i * chunk_bytes_, chunk_bytes_,
                  CopyKind::Load);
    }
    load_->synchronize();
  }
  void store() {
    for (size_t i = 0; i < num_chunks_; ++i) {
      store_->copy(down_.data() + i * chunk_bytes_, back_.data() + i * chunk_bytes_, chunk_bytes_,
                   CopyKind::Store);
    }
    store_->synchronize();
  }
  /// Checks the bytes that were loaded, by storing them, and the bytes that were stored.
  void verify() {
    if (std::memcmp(down_.data(), up_.data(), up_.bytes()) != 0) {
      throw std::runtime_error("WRONG RESULT: a store brought other bytes");
    }
    std::memset(down_.data(), 0, down_.bytes());
    store_->copy(down_.data(), there_.data(), there_.bytes(), CopyKind::Store);
    store_->synchronize();
    if (std::memcmp(down_.data(), up_.data(), up_.bytes()) != 0) {
      throw std::runtime_error("WRONG RESULT: a load brought other bytes");
    }
  }
  double bytes() const { return static_cast<double>(chunk_bytes_ * num_chunks_); }

 private:
  const size_t chunk_bytes_, num_chunks_;
  Buffer up_, down_, there_, back_;
  std::unique_ptr<Stream> load_, store_;
};

/// Runs AdamW over bf16 weights repeatedly, with all cores.
class Adam {
 public:
  explicit Adam(int64_t n)
      : n_(n),
        weight_(static_cast<size_t>(n)),
        gradient_(weight_),
        low_(weight_.size()),
        momentum_(weight_.size()),
        variance_(weight_.size()),
        team_(num_usable_cores()) {}

  void pass() {
    const auto bytes = [](auto& plane) { return reinterpret_cast<std::byte*>(plane.data()); };
    const Planes planes{.planes = {bytes(weight_), bytes(low_), bytes(momentum_), bytes(variance_)},
                        .gradient = reinterpret_cast<const std::byte*>(gradient_.data()),
                        .weight_dtype = DType::BF16,
                        .gradient_dtype = DType::BF16};
    adamw_update(team_, planes, n_, {.learning_rate = 1e-4, .t = ++t_}, 1, 1);
    ++passes_;
  }
  uint64_t passes() const { return passes_; }
  double bytes_of_a_pass() const {
    return update_bytes_per_parameter(DType::BF16, DType::BF16) * static_cast<double>(n_);
  }

 private:
  const int64_t n_;
  std::vector<uint16_t> weight_, gradient_;
  std::vector<int16_t> low_;
  std::vector<float> momentum_, variance_;
  ThreadTeam team_;
  int64_t t_ = 0;
  std::atomic<uint64_t> passes_ = 0;
};

struct Rates {
  double up = 0, down = 0, adam = 0;
};

/// Each direction runs for `seconds`, and is timed separately.
Rates measure(Link& link, Adam* adam, bool up, bool down, double seconds) {
  std::atomic<bool> stop = false;
  Rates rates;
  std::vector<std::thread> threads;
  const double start_s = steady_now_s();
  const auto go_on = [&](double& rate, double bytes, auto work) {
    threads.emplace_back([&rate, &stop, bytes, work, start_s] {
      uint64_t passes = 0;
      do {
        work();
        ++passes;
      } while (!stop);
      rate = bytes * static_cast<double>(passes) / (steady_now_s() - start_s);
    });
  };
  if (up) go_on(rates.up, link.bytes(), [&] { link.load(); });
  if (down) go_on(rates.down, link.bytes(), [&] { link.store(); });
  if (adam != nullptr) go_on(rates.adam, adam->bytes_of_a_pass(), [&] { adam->pass(); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return rates;
}

void print(const char* what, size_t chunk_bytes, const Rates& rates) {
  fmt::print("{:<28} {:>9} {:>9.2f} {:>9.2f} {:>9.2f}\n", what,
             chunk_bytes > 0 ? format_bytes(chunk_bytes) : "", rates.up / 1e9, rates.down / 1e9,
             rates.adam / 1e9);
}

/// What an allocation costs: the pages are touched, and then pinned.
void print_pinning(Device& device, bool small) {
  fmt::print("\n{:<28} {:>9} {:>9} {:>9}\n", "allocating", "bytes", "seconds", "GB/s");
  for (size_t bytes = size_t{1} << (small ? 22 : 30); bytes <= size_t{1} << (small ? 22 : 33);
       bytes *= 8) {
    for (const MemoryKind kind : {MemoryKind::Pageable, MemoryKind::Pinned}) {
      const double start_s = steady_now_s();
      const Buffer buffer = device.allocate(kind, bytes, "pinning");
      const double seconds = steady_now_s() - start_s;
      fmt::print("{:<28} {:>9} {:>9.3f} {:>9.2f}\n",
                 kind == MemoryKind::Pinned ? "touched and pinned" : "touched", format_bytes(bytes),
                 seconds, static_cast<double>(bytes) / seconds / 1e9);
    }
  }
}

}  // namespace

void measure_copies(const Options& options) {
  const auto device = create_device({.profile = {.kind = DeviceKind::Cuda}});
  const double seconds = options.small ? 0.01 : 1.5;
  Adam adam(options.small ? 65536 : int64_t{256} << 20);
  adam.pass();  // touches its pages
  fmt::print("{:<28} {:>9} {:>9} {:>9} {:>9}\n", "GB/s", "copies of", "up", "down", "AdamW");
  print("AdamW alone", 0, [&] {
    Rates rates;
    const double start_s = steady_now_s();
    const uint64_t before = adam.passes();
    while (steady_now_s() - start_s < seconds) adam.pass();
    rates.adam = adam.bytes_of_a_pass() * static_cast<double>(adam.passes() - before) /
                 (steady_now_s() - start_s);
    return rates;
  }());
  const size_t all_bytes = size_t{options.small ? 1u : 512u} << 20;
  for (const size_t chunk_bytes : {all_bytes / 256, all_bytes / 32, all_bytes / 8}) {
    Link link(*device, chunk_bytes, all_bytes / chunk_bytes);
    print("up alone", chunk_bytes, measure(link, nullptr, true, false, seconds));
    print("down alone", chunk_bytes, measure(link, nullptr, false, true, seconds));
    print("both", chunk_bytes, measure(link, nullptr, true, true, seconds));
    print("both, and AdamW", chunk_bytes, measure(link, &adam, true, true, seconds));
    link.verify();
  }
  print_pinning(*device, options.small);
}

}  // namespace ebb::bench
