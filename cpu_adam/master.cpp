#include "cpu_adam/master.h"

#include <cstddef>

#include "device/errors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/master.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu_adam/master-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

void split_range(const float* master, BF16* weight, int16_t* low, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    store_master(d, hn::LoadU(d, master + i), weight + i, low + i);
  }
  for (; i < n; ++i) store_master(d1, hn::LoadU(d1, master + i), weight + i, low + i);
}

void join_range(const BF16* weight, const int16_t* low, float* master, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(load_master(d, weight + i, low + i), d, master + i);
  }
  for (; i < n; ++i) hn::StoreU(load_master(d1, weight + i, low + i), d1, master + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(split_range);
HWY_EXPORT(join_range);

void split_masters(std::span<const float> master, std::span<BF16> weight, std::span<int16_t> low) {
  EBB_CHECK(weight.size() == master.size() && low.size() == master.size(),
            "master, weight and low must have one length");
  HWY_DYNAMIC_DISPATCH(split_range)(master.data(), weight.data(), low.data(), master.size());
}

void join_masters(std::span<const BF16> weight, std::span<const int16_t> low,
                  std::span<float> master) {
  EBB_CHECK(weight.size() == master.size() && low.size() == master.size(),
            "master, weight and low must have one length");
  HWY_DYNAMIC_DISPATCH(join_range)(weight.data(), low.data(), master.data(), master.size());
}

}  // namespace ebb
#endif
