#include "system/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "system/copy.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR has no streaming stores
constexpr size_t kPrefetchBytes = 2048;

template <bool kPrefetches>
HWY_INLINE void copy_lines(uint8_t* to, const uint8_t* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  for (size_t i = 0; i < bytes; i += hn::Lanes(d)) {
    if constexpr (kPrefetches) hwy::Prefetch(from + std::min(i + kPrefetchBytes, bytes));
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
  hwy::FlushStream();
}
#endif

// On AMD the hardware prefetches two streams fast enough, and prefetch instructions cost a tenth of
// the speed. On Intel they gain a quarter (docs/decisions.md). REQUIRES: `to` is aligned to 64
// bytes, and `bytes` is a multiple of 64.
void copy_streaming(std::byte* to, const std::byte* from, size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, bytes);
#else
  auto* const target = reinterpret_cast<uint8_t*>(to);
  const auto* const source = reinterpret_cast<const uint8_t*>(from);
  if (__builtin_cpu_is("intel")) {
    copy_lines<true>(target, source, bytes);
  } else {
    copy_lines<false>(target, source, bytes);
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {
namespace {

HWY_EXPORT(copy_streaming);

constexpr size_t kCacheLine = 64;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// Sanitizers see memcpy, but not streaming stores.
constexpr size_t kStreamingBytes = SIZE_MAX;
#else
constexpr size_t kStreamingBytes = size_t{1} << 20;
#endif

}  // namespace

void copy_bytes(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes >= kStreamingBytes) {
    const size_t head = -reinterpret_cast<uintptr_t>(target) % kCacheLine;
    std::memcpy(target, source, head);
    const size_t lines = (bytes - head) / kCacheLine * kCacheLine;
    HWY_DYNAMIC_DISPATCH(copy_streaming)(target + head, source + head, lines);
    target += head + lines, source += head + lines, bytes -= head + lines;
  }
  if (bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace ebb
#endif
