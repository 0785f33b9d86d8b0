// Compiled without contraction (-fmad=false) and with denormals flushed (-ftz=true): the bits are
// those of cpu_adam/.
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

/// The coefficients are in host memory, because they depend on the gradient norm, which the host
/// computes late. Each block reads them over the bus once, with one warp. So few blocks are
/// launched that they run concurrently on a GPU with kMultiprocessors.
constexpr int64_t kMostBlocks = 6 * kMultiprocessors;

template <class Weight, class Gradient>
__global__ void __launch_bounds__(kElementThreads)
    update(AdamWView<Weight, Gradient> at, bool is_wide, int64_t n,
           const AdamWCoefficients* coefficients) {
  constexpr int kWords = sizeof(AdamWCoefficients) / sizeof(uint32_t);
  struct Words {
    uint32_t of[kWords];
  };
  Words* const words = shared_memory<Words>();
  if (threadIdx.x < kWords) {
    words->of[threadIdx.x] = reinterpret_cast<const Words*>(coefficients)->of[threadIdx.x];
  }
  __syncthreads();
  const auto c = std::bit_cast<AdamWCoefficients>(*words);
  if (c.skip != 0) return;
  const int64_t at_once = static_cast<int64_t>(gridDim.x) * kElementThreads * kTogether;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x) * kTogether;
  for (; i < n; i += at_once) {
    if (is_wide && i + kTogether <= n) {
      update_group<true>(at, i, n, c);
    } else {
      update_group<false>(at, i, n, c);
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

void AdamWUpdate::run(const GpuLaunch& gpu) const {
  with_adamw_view(planes, [&]<class W, class G>(const AdamWView<W, G>& at) {
    const int64_t blocks = ceil_div(n, kElementThreads * kTogether);
    launch("adamw", gpu.stream, blocks_for(blocks < kMostBlocks ? blocks : kMostBlocks, 1),
           kElementThreads, sizeof(AdamWCoefficients), update<W, G>, at, planes_are_wide(at), n,
           coefficients);
  });
}

}  // namespace ebb
