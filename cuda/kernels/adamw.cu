// Compiled without contraction (-fmad=false) and with denormals flushed (-ftz=true): the bits are
// those of cpu_adam/.
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"
#include "device/adamw_planes.h"
#include "device/split_master.h"

namespace ebb::cuda {
namespace {

// The fp32 master of element i, loaded from the planes that hold it and stored to them.

__device__ float load_master(const float* weight, const int16_t*, int64_t i) { return weight[i]; }
__device__ void store_master(float x, float* weight, int16_t*, int64_t i) { weight[i] = x; }

__device__ float load_master(const BF16* weight, const int16_t* low, int64_t i) {
  return std::bit_cast<float>(join_master({weight[i].bits, low[i]}));
}
__device__ void store_master(float x, BF16* weight, int16_t* low, int64_t i) {
  const SplitMaster split = split_master(std::bit_cast<uint32_t>(x));
  weight[i].bits = split.weight;
  low[i] = split.low;
}

__device__ float load_master(const F16*, const float* master, int64_t i) { return master[i]; }
__device__ void store_master(float x, F16* weight, float* master, int64_t i) {
  master[i] = x;
  weight[i] = F16(x);
}

/// The coefficients are in host memory, because they depend on the gradient norm, which the host
/// computes late. Each block reads them over the bus once, for this number of elements of each
/// thread.
constexpr int kUpdatesAThread = 8;

/// The order of operations is that of cpu_adam/adamw.h.
template <class Weight, class Gradient>
__global__ void __launch_bounds__(kElementThreads)
    update(AdamWView<Weight, Gradient> at, int64_t n, const AdamWCoefficients* coefficients) {
  const AdamWCoefficients c = *coefficients;
  if (c.skip != 0) return;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kElementThreads * kUpdatesAThread) + threadIdx.x;
  for (int j = 0; j < kUpdatesAThread; ++j) {
    const int64_t i = first + j * kElementThreads;
    if (i >= n) return;
    const float g = to_float(at.gradient[i]) * c.gradient_scale;
    const float m = c.beta1 * at.momentum[i] + c.one_minus_beta1 * g;
    const float v = c.beta2 * at.variance[i] + (c.one_minus_beta2 * g) * g;
    at.momentum[i] = m;
    at.variance[i] = v;
    const float p = load_master(at.weight, at.remainder, i);
    const float denominator = __fsqrt_rn(v) * c.v_correction + c.epsilon;
    store_master(p - (c.decay_rate * p + c.step_size * __fdiv_rn(m, denominator)), at.weight,
                 at.remainder, i);
  }
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void AdamWUpdate::run(const GpuLaunch& gpu) const {
  with_float_type(planes.weight_dtype, [&]<class W>(W) {
    with_float_type(planes.gradient_dtype, [&]<class G>(G) {
      launch("adamw", gpu.stream, blocks_for(n, kElementThreads * kUpdatesAThread), kElementThreads,
             0, update<W, G>, adamw_view<W, G>(planes), n, coefficients);
    });
  });
}

}  // namespace ebb
