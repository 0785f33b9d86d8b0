#include <bit>
#include <cmath>

#include "device/adamw_planes.h"
#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"
#include "device/split_master.h"
#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

struct FloatMaster {
  float* at;
  float load(int64_t i) const { return at[i]; }
  void store(int64_t i, float x) const { at[i] = x; }
};

struct HalvedMaster {
  uint16_t* weight;
  int16_t* low;
  float load(int64_t i) const { return std::bit_cast<float>(join_master({weight[i], low[i]})); }
  void store(int64_t i, float x) const {
    const SplitMaster split = split_master(std::bit_cast<uint32_t>(x));
    weight[i] = split.weight;
    low[i] = split.low;
  }
};

struct WholeMaster {
  F16* weight;
  float* at;
  float load(int64_t i) const { return at[i]; }
  void store(int64_t i, float x) const {
    at[i] = x;
    weight[i] = F16(x);
  }
};

FloatMaster master_of(float* weight, int16_t*) { return {weight}; }
HalvedMaster master_of(BF16* weight, int16_t* low) {
  return {reinterpret_cast<uint16_t*>(weight), low};
}
WholeMaster master_of(F16* weight, float* master) { return {weight, master}; }

/// Computes the formulas of cpu_adam/adamw.h in the same order, without contraction.
template <class Master, class Gradient>
void update_range(const Master& master, float* HWY_RESTRICT momentum, float* HWY_RESTRICT variance,
                  const Gradient* HWY_RESTRICT gradient, const AdamWCoefficients& c, int64_t begin,
                  int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = static_cast<float>(gradient[i]) * c.gradient_scale;
    const float m = c.beta1 * momentum[i] + c.one_minus_beta1 * g;
    const float v = c.beta2 * variance[i] + (c.one_minus_beta2 * g) * g;
    momentum[i] = m;
    variance[i] = v;
    const float p = master.load(i);
    const float denominator = std::sqrt(v) * c.v_correction + c.epsilon;
    master.store(i, p - (c.decay_rate * p + c.step_size * (m / denominator)));
  }
}

void run_adamw(const AdamWUpdate& u, ThreadTeam& team) {
  with_adamw_view(u.planes, [&](const auto& at) {
    for (const UpdateRange& range : u.ranges) {
      const AdamWCoefficients& c = u.coefficients[range.which];
      if (c.skip) continue;
      for_each_range(team, range.count, kPieceElements, [&](int64_t begin, int64_t end) {
        update_range(master_of(at.weight, at.remainder), at.momentum, at.variance, at.gradient, c,
                     range.first + begin, range.first + end);
      });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_adamw);

void AdamWUpdate::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_adamw)(*this, host.team);
}

}  // namespace ebb
#endif
