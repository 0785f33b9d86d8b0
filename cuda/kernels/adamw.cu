// Compiled without contraction (-fmad=false) and with denormals flushed (-ftz=true): the bits are
// those of cpu_adam/.
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"
#include "device/split_master.h"

namespace ebb::cuda {
namespace {

struct FloatMaster {
  float* at;
  __device__ float load(int64_t i) const { return at[i]; }
  __device__ void store(int64_t i, float x) const { at[i] = x; }
};

struct HalvedMaster {
  uint16_t* weight;
  int16_t* low;
  __device__ float load(int64_t i) const {
    return std::bit_cast<float>(join_master({weight[i], low[i]}));
  }
  __device__ void store(int64_t i, float x) const {
    const SplitMaster split = split_master(std::bit_cast<uint32_t>(x));
    weight[i] = split.weight;
    low[i] = split.low;
  }
};

struct WholeMaster {
  F16* weight;
  float* at;
  __device__ float load(int64_t i) const { return at[i]; }
  __device__ void store(int64_t i, float x) const {
    at[i] = x;
    weight[i] = F16(x);
  }
};

/// The coefficients are in host memory, because they depend on the gradient norm, which the host
/// computes late. Each block reads them over the bus once, for this number of elements of each
/// thread.
constexpr int kUpdatesAThread = 8;

/// The order of operations is that of cpu_adam/adamw.h.
template <class Master, class Gradient>
__global__ void __launch_bounds__(kElementThreads)
    update(Master master, float* momentum, float* variance, const Gradient* gradient, int64_t n,
           const AdamWCoefficients* coefficients) {
  const AdamWCoefficients c = *coefficients;
  if (c.skip != 0) return;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kElementThreads * kUpdatesAThread) + threadIdx.x;
  for (int j = 0; j < kUpdatesAThread; ++j) {
    const int64_t i = first + j * kElementThreads;
    if (i >= n) return;
    const float g = to_float(gradient[i]) * c.gradient_scale;
    const float m = c.beta1 * momentum[i] + c.one_minus_beta1 * g;
    const float v = c.beta2 * variance[i] + (c.one_minus_beta2 * g) * g;
    momentum[i] = m;
    variance[i] = v;
    const float p = master.load(i);
    const float denominator = __fsqrt_rn(v) * c.v_correction + c.epsilon;
    master.store(i, p - (c.decay_rate * p + c.step_size * __fdiv_rn(m, denominator)));
  }
}

template <class Master>
void launch_update(cudaStream_t stream, const AdamWUpdate& f, const Master& master) {
  const int64_t n = f.weight.num_elements();
  with_float_type(f.gradient.dtype, [&](auto zero) {
    using Gradient = decltype(zero);
    launch("adamw", stream, blocks_for(n, kElementThreads * kUpdatesAThread), kElementThreads, 0,
           update<Master, Gradient>, master, f.momentum.as<float>(), f.variance.as<float>(),
           f.gradient.as<Gradient>(), n, f.coefficients);
  });
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void AdamWUpdate::run(const GpuLaunch& gpu) const {
  if (weight.dtype == DType::F32) {
    return launch_update(gpu.stream, *this, FloatMaster{weight.as<float>()});
  }
  if (weight.dtype == DType::F16) {
    return launch_update(gpu.stream, *this, WholeMaster{weight.as<F16>(), master});
  }
  launch_update(gpu.stream, *this, HalvedMaster{reinterpret_cast<uint16_t*>(weight.data), low});
}

}  // namespace ebb
