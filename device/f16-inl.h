// Conversions of vectors between fp16 and fp32. The results have the bits of F16 (device/dtype.h)
// on every instruction set. Include this file only in a foreach_target source. REQUIRES: rounding
// to nearest. Flushing of denormals may be on or off.
#if defined(EBB_DEVICE_HOST_F16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_DEVICE_HOST_F16_INL_H_
#undef EBB_DEVICE_HOST_F16_INL_H_
#else
#define EBB_DEVICE_HOST_F16_INL_H_
#endif

#include "device/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX2  // wider instruction sets have smaller numbers; AVX2 has F16C

template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const F16* from) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(du16, &from->bits)));
}

template <class D>
HWY_INLINE void store_f16(D, hn::Vec<D> value, F16* to) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::BitCast(du16, hn::DemoteTo(df16, value)), du16, &to->bits);
}

#else  // on these targets Highway's conversions truncate, and turn Inf and NaN into numbers

template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const F16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, &from->bits));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto less = [&](auto a, uint32_t b) {
    return hn::RebindMask(du, hn::Lt(hn::BitCast(di, a), hn::Set(di, static_cast<int32_t>(b))));
  };
  const auto normal = hn::Add(magnitude, hn::Set(du, 112u << 23));
  // Subtracts 2^-14 from 2^-14 plus the subnormal: no operand and no result is a denormal fp32.
  const auto with_leading_bit = hn::BitCast(d, hn::Add(magnitude, hn::Set(du, 113u << 23)));
  const auto subnormal = hn::BitCast(du, hn::Sub(with_leading_bit, hn::Set(d, 0x1p-14f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
  const auto quiet = hn::Or(special, hn::Set(du, 0x400000u));
  auto result = hn::IfThenElse(less(magnitude, 0x800000u), subnormal, normal);
  result = hn::IfThenElse(less(magnitude, 0xf800000u), result, special);
  result = hn::IfThenElse(less(magnitude, 0xf800001u), result, quiet);
  return hn::BitCast(d, hn::Or(sign, result));
}

template <class D>
HWY_INLINE void store_f16(D d, hn::Vec<D> value, F16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto sign = hn::ShiftRight<16>(hn::Sub(bits, magnitude));
  const auto less = [&](uint32_t b) {
    return hn::RebindMask(du,
                          hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(b))));
  };
  // The sum of 1/2 and a small value is rounded at the last bit of an fp16 subnormal.
  const auto on_half = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, on_half), hn::Set(du, 126u << 23));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto biased = hn::Sub(magnitude, hn::Set(du, (112u << 23) - 0xfffu));
  const auto normal = hn::ShiftRight<13>(hn::Add(biased, odd));
  const auto quiet =
      hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)));
  auto result = hn::IfThenElse(less(113u << 23), subnormal, normal);
  result = hn::IfThenElse(less(0x47800000u), result, hn::Set(du, 0x7c00u));
  result = hn::IfThenElse(less(0x7f800001u), result, quiet);
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, hn::Or(sign, result))), du16, &to->bits);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
