// Stores of whole cache lines that bypass the caches. Include this file only in a foreach_target
// source.
#if defined(EBB_DEVICE_STREAM_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_DEVICE_STREAM_LINES_INL_H_
#undef EBB_DEVICE_STREAM_LINES_INL_H_
#else
#define EBB_DEVICE_STREAM_LINES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Copies whole cache lines past the caches. hwy::FlushStream() makes the lines visible to other
/// threads. Sanitizers only see ordinary stores, so builds with a sanitizer use memcpy. REQUIRES:
/// `to` is aligned to 64 bytes, and `bytes` is a multiple of 64.
HWY_INLINE void stream_lines(void* to, const void* from, int64_t bytes) {
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  std::memcpy(to, from, static_cast<size_t>(bytes));
#else
  const hn::CappedTag<uint8_t, 64> d;
  for (int64_t i = 0; i < bytes; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::Stream(hn::LoadU(d, static_cast<const uint8_t*>(from) + i), d,
               static_cast<uint8_t*>(to) + i);
  }
#endif
}

HWY_INLINE bool is_whole_lines(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % 64 == 0 && bytes % 64 == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif
