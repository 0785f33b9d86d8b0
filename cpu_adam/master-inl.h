// The functions of master.h in vectors. Compiled once for each instruction set: include this file
// only in a foreach_target source.
#if defined(EBB_CPU_ADAM_MASTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_MASTER_INL_H_
#undef EBB_CPU_ADAM_MASTER_INL_H_
#else
#define EBB_CPU_ADAM_MASTER_INL_H_
#endif

#include "device/dtype.h"
#include "device/f16-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const BF16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, &from->bits))));
}

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const F16* from) {
  return load_f16(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_master(D d, const BF16* weight, const int16_t* low) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int16_t, D> di16;
  const auto high = hn::BitCast(du, load_float(d, weight));
  const auto remainder = hn::PromoteTo(di, hn::LoadU(di16, low));
  return hn::BitCast(d, hn::Add(high, hn::BitCast(du, remainder)));
}

/// The bits of the master before the split. A NaN is made quiet and its lower half is cleared, so
/// the rounding to bf16 keeps it a NaN.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> kept_bits(D, hn::Vec<D> master) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, master);
  const auto nan = hn::And(hn::Or(bits, hn::Set(du, 0x400000u)), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(master)), nan, bits);
}

/// Stores a master with any bits, also those of a NaN.
template <class D>
HWY_INLINE void store_master_bits(D, hn::Vec<hn::RebindToUnsigned<D>> master, BF16* weight,
                                  int16_t* low) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto high = hn::ShiftRight<16>(hn::Add(master, hn::Set(du, 0x8000u)));
  hn::StoreU(hn::TruncateTo(du16, high), du16, &weight->bits);
  // The rounding error is in -32768 .. 32767, so its 16 bits are the lower bits of the master.
  hn::StoreU(hn::TruncateTo(du16, master), du16, reinterpret_cast<uint16_t*>(low));
}

template <class D>
HWY_INLINE void store_master(D d, hn::Vec<D> master, BF16* weight, int16_t* low) {
  store_master_bits(d, kept_bits(d, master), weight, low);
}

#if HWY_TARGET != HWY_SCALAR
/// Stores two consecutive vectors. This takes fewer operations than two separate stores.
template <class D>
HWY_INLINE void store_masters(D d, hn::Vec<D> first, hn::Vec<D> second, BF16* weight,
                              int16_t* low) {
  const hn::Repartition<uint16_t, D> du16;
  const auto halves0 = hn::BitCast(du16, kept_bits(d, first));
  const auto halves1 = hn::BitCast(du16, kept_bits(d, second));
  const auto lower = hn::ConcatEven(du16, halves1, halves0);
  const auto upper = hn::ConcatOdd(du16, halves1, halves0);
  // A master rounds up if the highest bit of its lower half is set.
  hn::StoreU(hn::Add(upper, hn::ShiftRight<15>(lower)), du16, &weight->bits);
  hn::StoreU(lower, du16, reinterpret_cast<uint16_t*>(low));
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
