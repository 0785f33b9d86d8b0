// Is the sum of the gradients of several groups as fast as memory allows?
//
//   bench_ordered_sum [groups = 4] [flags of Google Benchmark]
//
// Sums arrays of 64 MiB, which are not in a cache, and rounds the sum to fp32, bf16 or fp16 with
// its partial norms, with 1 and with 2 threads. The roof is a copy of each of the arrays with the
// copy of the host device (system/copy.h). Bound and achieved are bytes read and written a second,
// the time is that of one sum. After each run a sample of elements is compared, to the bit, with a
// plain loop.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "bench/huge_pages.h"
#include "bench/micro_benchmark.h"
#include "bench/planes_memory.h"
#include "cpu_adam/ordered_sum.h"
#include "device/kernel_arguments.h"
#include "system/copy.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

constexpr size_t kArrayBytes = size_t{64} << 20;
constexpr int64_t kCount = kArrayBytes / sizeof(float);

/// Gradient sums of several groups, and memory for a copy of one of them or for the gradient.
class Sums {
 public:
  explicit Sums(size_t num_groups)
      : memory_((num_groups + 1) * (kArrayBytes + kPlaneGap)), partials_(kCount / kPieceElements) {
    for (size_t g = 0; g < num_groups; ++g) {
      float* const sums = array(g);
      groups_.push_back(reinterpret_cast<const std::byte*>(sums));
      for (int64_t i = 0; i < kCount; ++i) sums[i] = value(g, i);
    }
    std::memset(gradient(), 0, kArrayBytes);
  }

  /// Bytes read and written by finish().
  double bytes(DType type) const {
    return static_cast<double>(groups_.size() * kArrayBytes + kCount * size_of(type));
  }
  void finish(ThreadTeam& team, DType type) {
    const GroupSums uses[] = {groups_};
    round_sums_in_order(team, uses, DType::F32, kCount, gradient(), type, partials_);
  }
  /// Copies each array to the place of the gradient.
  void copy(ThreadTeam& team) {
    constexpr size_t kPieceBytes = size_t{1} << 20;  // fewer bytes would be copied with memcpy
    constexpr int64_t kPieces = kArrayBytes / kPieceBytes;
    team.for_each(kPieces * std::ssize(groups_), [&](int64_t i) {
      const size_t at = static_cast<size_t>(i % kPieces) * kPieceBytes;
      const std::byte* const from = groups_[static_cast<size_t>(i / kPieces)];
      copy_bytes(gradient() + at, from + at, kPieceBytes);
    });
  }
  double bytes_of_copy() const { return static_cast<double>(2 * groups_.size() * kArrayBytes); }

  bool is_right(DType type) const {
    for (int64_t i = 0; i < kCount; i += 997) {
      float sum = value(0, i);
      for (size_t g = 1; g < groups_.size(); ++g) sum = sum + value(g, i);
      const bool same = with_float_type(type, [&](auto zero) {
        const auto rounded = static_cast<decltype(zero)>(sum);
        return std::memcmp(&rounded, gradient() + static_cast<size_t>(i) * sizeof(rounded),
                           sizeof(rounded)) == 0;
      });
      if (!same) return false;
    }
    return true;
  }

 private:
  // Both signs, and magnitudes of 2^-8 .. 2^-6.
  static float value(size_t g, int64_t i) {
    const uint32_t bits = scramble(i + static_cast<int64_t>(g) * kCount);
    return std::bit_cast<float>(0x3b800000u | (bits & 0x80ffffffu));
  }
  float* array(size_t g) const {
    return reinterpret_cast<float*>(memory_.data() + g * (kArrayBytes + kPlaneGap));
  }
  std::byte* gradient() const { return reinterpret_cast<std::byte*>(array(groups_.size())); }

  HugePages memory_;
  std::vector<const std::byte*> groups_;
  std::vector<double> partials_;
};

void measure(benchmark::State& state, DType type, int num_threads, Sums& sums) {
  ThreadTeam team(num_threads);
  measure_against_roof(state, {sums.bytes_of_copy(), [&] { sums.copy(team); }},
                       {sums.bytes(type), [&] { sums.finish(team, type); }});
  if (!sums.is_right(type)) fail(state, "the gradient differs from what a plain loop makes");
}

void register_all(Arguments arguments) {
  const auto sums = made_once<Sums>(static_cast<size_t>(number_in(arguments, 0, 4)));
  for (int threads = 1; threads <= std::min(2, num_usable_cores()); ++threads) {
    for (DType type : {DType::F32, DType::BF16, DType::F16}) {
      register_benchmark(
          "ordered sum/" + std::string(name_of(type)) + "/threads:" + std::to_string(threads),
          [=](benchmark::State& state) { measure(state, type, threads, sums()); });
    }
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
