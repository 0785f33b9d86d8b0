// The rounding of vectors of fp32 to bf16. The results have the bits of BF16 (device/dtype.h) on
// every instruction set. Include this file only in a foreach_target source.
#if defined(EBB_DEVICE_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_DEVICE_BF16_INL_H_
#undef EBB_DEVICE_BF16_INL_H_
#else
#define EBB_DEVICE_BF16_INL_H_
#endif

#include "device/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rounds to nearest even with integer operations, because Highway's conversion truncates.
template <class D>
HWY_INLINE void store_bf16(D, hn::Vec<D> value, BF16* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToSigned<D> di32;
  const hn::RebindToUnsigned<D> d32;
  const auto x = hn::BitCast(d32, value);
  const auto high = hn::ShiftRight<16>(x);
  const auto odd = hn::And(high, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(x, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet_nan = hn::Or(high, hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  const auto bits = hn::IfThenElse(is_nan, quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, &to->bits);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
