// Compiled without contraction (-fmad=false) and with denormals flushed (-ftz=true): the bits are
// those of cpu_adam/.
#include <algorithm>

#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/wide.h"
#include "device/adamw_planes.h"
#include "device/split_master.h"

namespace ebb::cuda {
namespace {

// The fp32 master of an element, joined from the planes that hold it and split into them.

__device__ float join(float weight, int16_t) { return weight; }
__device__ void split(float x, float& weight, int16_t&) { weight = x; }

__device__ float join(BF16 weight, int16_t low) {
  return std::bit_cast<float>(join_master({weight.bits, low}));
}
__device__ void split(float x, BF16& weight, int16_t& low) {
  const SplitMaster split = split_master(std::bit_cast<uint32_t>(x));
  weight.bits = split.weight;
  low = split.low;
}

__device__ float join(F16, float master) { return master; }
__device__ void split(float x, F16& weight, float& master) {
  master = x;
  weight = F16(x);
}

constexpr int kTogether = 4;  // elements that a thread updates together

/// Updates elements [first, first + kTogether), of those before n. kIsWide: all of them are before
/// n, and the planes are aligned. All planes are read before the first one is written. The order of
/// operations is that of cpu_adam/adamw.h.
template <bool kIsWide, class Weight, class Gradient>
__device__ __forceinline__ void update_group(const AdamWView<Weight, Gradient>& at, int64_t first,
                                             int64_t n, const AdamWCoefficients& c) {
  constexpr bool kHasRemainder = !std::is_same_v<Weight, float>;
  const auto gradient = load_group<kIsWide, kTogether>(at.gradient, first, n);
  auto momentum = load_group<kIsWide, kTogether>(at.momentum, first, n);
  auto variance = load_group<kIsWide, kTogether>(at.variance, first, n);
  Group<Weight, kTogether> weight = {};
  if constexpr (!std::is_same_v<Weight, F16>) {
    weight = load_group<kIsWide, kTogether>(at.weight, first, n);
  }
  Group<Remainder<Weight>, kTogether> remainder = {};
  if constexpr (kHasRemainder) {
    remainder = load_group<kIsWide, kTogether>(at.remainder, first, n);
  }
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const float g = to_float(gradient.of[i]) * c.gradient_scale;
    const float m = c.beta1 * momentum.of[i] + c.one_minus_beta1 * g;
    const float v = c.beta2 * variance.of[i] + (c.one_minus_beta2 * g) * g;
    momentum.of[i] = m;
    variance.of[i] = v;
    const float p = join(weight.of[i], remainder.of[i]);
    const float denominator = __fsqrt_rn(v) * c.v_correction + c.epsilon;
    split(p - (c.decay_rate * p + c.step_size * __fdiv_rn(m, denominator)), weight.of[i],
          remainder.of[i]);
  }
  store_group<kIsWide>(at.momentum, first, n, momentum);
  store_group<kIsWide>(at.variance, first, n, variance);
  store_group<kIsWide>(at.weight, first, n, weight);
  if constexpr (kHasRemainder) store_group<kIsWide>(at.remainder, first, n, remainder);
}

constexpr int kTile = 2 * kElementThreads * kTogether;  // elements that a block updates at once

/// The ranges of a launch, cut into tiles of kTile elements or less. They are a parameter of the
/// kernel, so they need no memory.
struct RangesOfLaunch {
  UpdateRange of[kRangesAtOnce];
  int first_tile[kRangesAtOnce + 1];  // of each range
  int num_tiles;
};

/// So few blocks are launched that they run concurrently on a GPU of sm_90 with kMultiprocessors.
/// On sm_80, four blocks run on a multiprocessor if the weights are bf16.
constexpr int kMostBlocks = 5 * static_cast<int>(kMultiprocessors);

/// With all threads of the block.
__device__ __forceinline__ void copy_coefficients(AdamWCoefficients* to,
                                                  const AdamWCoefficients* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kElementThreads) to[i] = from[i];
}

/// Copies the coefficients to the device. They are in host memory, because they depend on the
/// gradient norm, which the host computes late. A copy by the GPU's copy engine could wait for the
/// load of a chunk.
__global__ void fetch_coefficients(AdamWCoefficients* to, const AdamWCoefficients* from,
                                   int count) {
  copy_coefficients(to, from, count);
}

/// Updates all tiles. planes_are_wide: all planes are aligned to kTogether
/// elements. The coefficients are read from shared memory where they are used, because registers
/// decide how many blocks run concurrently.
template <class Weight, class Gradient>
__global__ void __launch_bounds__(kElementThreads)
    update(AdamWView<Weight, Gradient> at, bool planes_are_wide, RangesOfLaunch ranges,
           const AdamWCoefficients* coefficients, int num_coefficients) {
  auto* const shared = shared_memory<AdamWCoefficients>();
  copy_coefficients(shared, coefficients, num_coefficients);
  __syncthreads();
  int r = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < ranges.num_tiles;
       tile += static_cast<int>(gridDim.x)) {
    while (ranges.first_tile[r + 1] <= tile) ++r;
    const AdamWCoefficients& c = shared[ranges.of[r].which];
    if (c.skip != 0) continue;
    const bool is_wide = planes_are_wide && ranges.of[r].first % kTogether == 0;
    const int64_t begin = static_cast<int64_t>(tile - ranges.first_tile[r]) * kTile;
    const int64_t end = ranges.of[r].first + ranges.of[r].count;
    int64_t i = ranges.of[r].first + begin + static_cast<int64_t>(threadIdx.x) * kTogether;
    for (int turn = 0; turn < kTile / (kElementThreads * kTogether) && i < end; ++turn) {
      if (is_wide && i + kTogether <= end) {
        update_group<true>(at, i, end, c);
      } else {
        update_group<false>(at, i, end, c);
      }
      i += kElementThreads * kTogether;
    }
  }
}

/// Can each plane be accessed as groups of kTogether elements?
template <class Weight, class Gradient>
bool planes_are_wide(const AdamWView<Weight, Gradient>& at) {
  const auto is_wide = [](const auto* plane) {
    return is_aligned(plane, kTogether * sizeof(*plane));
  };
  return is_wide(at.weight) && is_wide(at.remainder) && is_wide(at.momentum) &&
         is_wide(at.variance) && is_wide(at.gradient);
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

size_t AdamWUpdate::workspace_bytes(const GpuLaunch&) const {
  return fetched != nullptr ? 0 : coefficients.size_bytes();
}

void AdamWUpdate::run(const GpuLaunch& gpu) const {
  auto* const copy =
      fetched != nullptr ? fetched : gpu.scratch<AdamWCoefficients>(coefficients.size_bytes());
  const auto count = static_cast<int>(coefficients.size());
  launch("adamw coefficients", gpu.stream, dim3(1), kElementThreads, 0, fetch_coefficients, copy,
         coefficients.data(), count);
  for (size_t first = 0; first < ranges.size(); first += kRangesAtOnce) {
    const auto part = ranges.subspan(first, std::min(kRangesAtOnce, ranges.size() - first));
    RangesOfLaunch now = {};
    std::ranges::copy(part, now.of);
    for (size_t r = 0; r < part.size(); ++r) {
      now.num_tiles += static_cast<int>(ceil_div(part[r].count, kTile));
      now.first_tile[r + 1] = now.num_tiles;
    }
    with_adamw_view(planes, [&]<class W, class G>(const AdamWView<W, G>& at) {
      launch("adamw", gpu.stream, blocks_for(std::min(now.num_tiles, kMostBlocks), 1),
             kElementThreads, coefficients.size_bytes(), update<W, G>, at, planes_are_wide(at), now,
             copy, count);
    });
  }
}

}  // namespace ebb
