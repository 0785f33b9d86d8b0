// The time to map a block, on an idle GPU and while kernels or copies run, and whether mapping
// stalls them. Also the delay between the write of a host thread and the stream that waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include "bench/gpu/gpu.h"
#include "system/clock.h"

namespace ebb::bench {
namespace {

constexpr uint32_t kNumBlocks = 8;

/// Blocks and as many addresses. Each call of move() maps a block at the next address.
class Wanderers {
 public:
  Wanderers(Gpu& gpu, size_t block_bytes)
      : user_(gpu.compute()),
        blocks_(gpu.device().create_blocks(block_bytes, kNumBlocks)),
        range_(blocks_->reserve(kNumBlocks * block_bytes)),
        block_bytes_(block_bytes) {}

  /// Maps another block at the next address, and returns the time in seconds.
  double move() {
    const uint64_t round = moves_ / kNumBlocks, at = moves_ % kNumBlocks;
    const uint32_t block = static_cast<uint32_t>((at + round) % kNumBlocks);
    std::byte* const place = range_ + at * block_bytes_;
    const double start_s = steady_now_s();
    blocks_->map(block, place, user_);
    ++moves_;
    last_ = place;
    return steady_now_s() - start_s;
  }
  std::byte* last() const { return last_; }

 private:
  Stream& user_;
  const std::unique_ptr<Blocks> blocks_;
  std::byte* const range_;
  const size_t block_bytes_;
  uint64_t moves_ = 0;
  std::byte* last_ = nullptr;
};

struct Moves {
  std::vector<double> seconds;

  void print(const char* what, size_t block_bytes, const std::string& beside) const {
    fmt::print("{:<26} {:>9} {:>7} {:>9.1f} {:>9.1f} {:>9.1f}  {}\n", what,
               format_bytes(block_bytes), seconds.size(), 1e6 * median(seconds),
               1e6 * *std::max_element(seconds.begin(), seconds.end()),
               1e6 * *std::min_element(seconds.begin(), seconds.end()), beside);
  }
};

/// Work for a stream: one call submits one kernel or copy, or a few.
struct Work {
  const char* name;
  Stream* stream;
  std::function<void()> submit;
  int times;
};

struct Taken {
  double submit_s = 0, device_s = 0;
};

/// Submits the work from another thread, and calls `beside` repeatedly until the work is done.
Taken run(Gpu& gpu, const Work& work, const std::function<void()>& beside) {
  const auto begin = gpu.device().create_event(), end = gpu.device().create_event();
  std::atomic<bool> done = false;
  Taken taken;
  std::thread submitting([&] {
    const double start_s = steady_now_s();
    work.stream->record(*begin);
    for (int i = 0; i < work.times; ++i) work.submit();
    work.stream->record(*end);
    taken.submit_s = steady_now_s() - start_s;
    work.stream->synchronize();
    done = true;
  });
  while (!done) beside();
  submitting.join();
  taken.device_s = end->time_s() - begin->time_s();
  return taken;
}

void wait_a_little() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

void measure_beside(Gpu& gpu, const Work& work, Wanderers& wanderers, size_t block_bytes) {
  run(gpu, work, wait_a_little);
  const Taken alone = run(gpu, work, wait_a_little);
  Moves moves;
  const Taken both = run(gpu, work, [&] { moves.seconds.push_back(wanderers.move()); });
  const Taken again = run(gpu, work, wait_a_little);
  if (moves.seconds.empty()) moves.seconds.push_back(wanderers.move());
  const double work_s = std::min(alone.device_s, again.device_s);
  const double a_move_costs_s =
      (both.device_s - work_s) / static_cast<double>(moves.seconds.size());
  moves.print(
      work.name, block_bytes,
      fmt::format("the work {:.1f} ms, alone {:.1f} and {:.1f} ({:+.1f} us a move); submitted "
                  "in {:.1f} ms, alone {:.1f}",
                  1e3 * both.device_s, 1e3 * alone.device_s, 1e3 * again.device_s,
                  1e6 * a_move_costs_s, 1e3 * both.submit_s, 1e3 * alone.submit_s));
}

/// Checks that a moved block keeps the bytes that are written to it afterwards.
void verify(Gpu& gpu, Wanderers& wanderers) {
  wanderers.move();
  const Tensor there{wanderers.last(), DType::F32, {1024}};
  const Tensor values = gpu.make(DType::F32, {1024});
  gpu.compute().copy(there.data, values.data, values.bytes(), CopyKind::Within);
  const std::vector<float> found = gpu.read(there, 0, 1024);
  for (int64_t i = 0; i < 1024; ++i) {
    check_close(found[static_cast<size_t>(i)], Gpu::value(i), 0, "a number in a block that moved");
  }
}

/// Measures the delay from the end of a host function to the stream that waits for it.
void measure_signals(Gpu& gpu, bool small) {
  const auto update = gpu.device().create_stream(StreamKind::Update);
  const auto signalled = gpu.device().create_event(), reached = gpu.device().create_event();
  std::vector<double> seconds;
  for (int i = 0; i < (small ? 3 : 500); ++i) {
    double ended_s = 0;
    update->submit({}, [&] {
      const double start_s = steady_now_s();
      while (steady_now_s() - start_s < 300e-6) {
      }
      ended_s = gpu.device().now_s();
    });
    update->record(*signalled);
    gpu.compute().wait(*signalled);
    gpu.compute().record(*reached);
    gpu.compute().synchronize();
    update->synchronize();
    seconds.push_back(reached->time_s() - ended_s);
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      "\na stream goes on after a host thread let it: {:.1f} us (median), {:.1f} (99 %), {:.1f} "
      "(worst of {})\n",
      1e6 * median(seconds), 1e6 * seconds[seconds.size() * 99 / 100], 1e6 * seconds.back(),
      seconds.size());
}

}  // namespace

void measure_mapping(const Options& options) {
  Gpu gpu(options);
  const int64_t n = options.small ? 32 : 4096, few = options.small ? 64 : 65536;
  const Tensor x = gpu.make(DType::BF16, {n, n}), w = gpu.make(DType::BF16, {n, n});
  const Tensor y = gpu.make_empty(DType::BF16, {n, n});
  const Tensor a = gpu.make(DType::F32, {few}), sum = gpu.make_empty(DType::F32, {few});
  const size_t copied_bytes = options.small ? size_t{1} << 16 : size_t{64} << 20;
  const Tensor there = gpu.make_empty(DType::F32, {static_cast<int64_t>(copied_bytes / 4)});
  const Buffer home = gpu.device().allocate(MemoryKind::Pinned, copied_bytes, "copied");
  const auto load = gpu.device().create_stream(StreamKind::Load);
  const auto store = gpu.device().create_stream(StreamKind::Store);
  const int num_copies = options.small ? 2 : 150;
  const Work works[] = {
      {"beside products", &gpu.compute(),
       [&] {
         gpu.kernels().submit(gpu.compute(), LinearForward{y, x, w, {}});
       },
       options.small ? 2 : 1000},
      {"beside small kernels", &gpu.compute(),
       [&] {
         gpu.kernels().submit(gpu.compute(), Add{sum, a, a});
       },
       options.small ? 4 : 20000},
      {"beside loads", load.get(),
       [&] { load->copy(there.data, home.data(), copied_bytes, CopyKind::Load); }, num_copies},
      {"beside stores", store.get(),
       [&] { store->copy(home.data(), there.data, copied_bytes, CopyKind::Store); }, num_copies},
  };
  fmt::print("{:<26} {:>9} {:>7} {:>9} {:>9} {:>9}\n", "microseconds of a move", "block", "moves",
             "median", "worst", "best");
  for (const size_t mebibytes : {2, 16, 64}) {
    const size_t block_bytes = mebibytes << 20;
    Wanderers wanderers(gpu, block_bytes);
    Moves first, idle;
    for (uint32_t i = 0; i < kNumBlocks; ++i) first.seconds.push_back(wanderers.move());
    for (int i = 0; i < (options.small ? 4 : 400); ++i) idle.seconds.push_back(wanderers.move());
    first.print("first, nothing to unmap", block_bytes, "");
    idle.print("idle", block_bytes, "");
    for (const Work& work : works) measure_beside(gpu, work, wanderers, block_bytes);
    verify(gpu, wanderers);
    if (options.small) break;
  }
  measure_signals(gpu, options.small);
}

}  // namespace ebb::bench
