#include "bench/peak.h"

#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ebb::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double multiply_add(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  // The chains start with different values, because the compiler would merge equal chains.
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
}  // namespace ebb::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb::bench {

HWY_EXPORT(multiply_add);

double run_at_peak(ThreadTeam& team, Arithmetic arithmetic, int64_t rounds) {
  float sinks[256] = {};
  double flops[256] = {};
  team.for_each(team.num_threads(), [&](int64_t i) {
    flops[i % 256] = arithmetic == Arithmetic::Bf16Dot
                         ? dot_products(rounds, &sinks[i % 256])
                         : HWY_DYNAMIC_DISPATCH(multiply_add)(rounds, &sinks[i % 256]);
  });
  return flops[0] * team.num_threads();
}

}  // namespace ebb::bench
#endif
