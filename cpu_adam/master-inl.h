// Vector form of master.h, compiled once for each instruction set: include inside a foreach_target
// source only.
#if defined(EBB_CPU_ADAM_MASTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_CPU_ADAM_MASTER_INL_H_
#undef EBB_CPU_ADAM_MASTER_INL_H_
#else
#define EBB_CPU_ADAM_MASTER_INL_H_
#endif

#include "device/dtype.h"
#include "device/host/f16-inl.h"
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

template <class D>
HWY_INLINE void store_master(D, hn::Vec<D> master, BF16* weight, int16_t* low) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<int16_t, D> di16;
  const auto bits = hn::BitCast(du, master);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(du, 0x8000u)));
  const auto remainder = hn::BitCast(di, hn::Sub(bits, hn::ShiftLeft<16>(rounded)));

  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
  const auto quiet = hn::BitCast(di, hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u)));
  const auto high = hn::IfThenElse(is_nan, quiet, hn::BitCast(di, rounded));

  // Neither demotion saturates: high is within 0 .. 65535, the remainder within -32768 .. 32767.
  hn::StoreU(hn::DemoteTo(du16, high), du16, &weight->bits);
  hn::StoreU(hn::DemoteTo(di16, hn::IfThenZeroElse(is_nan, remainder)), di16, low);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
