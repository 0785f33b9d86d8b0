// The random numbers of dropout for sixteen counters at once. Compiled once for each instruction
// set: include this file only in a foreach_target source.
#if defined(EBB_HOST_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_HOST_KERNELS_DROPOUT_INL_H_
#undef EBB_HOST_KERNELS_DROPOUT_INL_H_
#else
#define EBB_HOST_KERNELS_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "device/dropout.h"
#include "device/host/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

/// The dropout factors of sixteen groups of four elements: factors[j][l] is the factor of element j
/// of group groups[l]. Compilers vectorise the loops over l.
HWY_INLINE void dropout_factors(const Dropout& d, uint32_t row, uint32_t part,
                                const uint32_t* groups, float kept, float (&factors)[4][kWide]) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  alignas(64) uint32_t x[4][kWide];
  for (int64_t l = 0; l < kWide; ++l) {
    x[0][l] = groups[l];
    x[1][l] = d.first_sample + row;
    x[2][l] = static_cast<uint32_t>(d.counter_hi(part));
    x[3][l] = static_cast<uint32_t>(d.counter_hi(part) >> 32);
  }
  auto key0 = static_cast<uint32_t>(d.key), key1 = static_cast<uint32_t>(d.key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int64_t l = 0; l < kWide; ++l) {
      const uint64_t product0 = kMultiplier0 * x[0][l], product1 = kMultiplier1 * x[2][l];
      x[0][l] = static_cast<uint32_t>(product1 >> 32) ^ x[1][l] ^ key0;
      x[2][l] = static_cast<uint32_t>(product0 >> 32) ^ x[3][l] ^ key1;
      x[1][l] = static_cast<uint32_t>(product1);
      x[3][l] = static_cast<uint32_t>(product0);
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const uint32_t threshold = d.threshold();
  for (int j = 0; j < 4; ++j) {
    for (int64_t l = 0; l < kWide; ++l) factors[j][l] = x[j][l] < threshold ? 0.0f : kept;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
