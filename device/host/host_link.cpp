#include "device/host/host_link.h"

#include <emmintrin.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace ebb {
namespace {

/// The unit in which an emulated copy alternates between copying and sleeping.
constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr size_t kCacheLine = 64;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// The sanitizers see memcpy, but not streaming stores.
constexpr size_t kStreamingBytes = SIZE_MAX;
#else
constexpr size_t kStreamingBytes = size_t{1} << 20;
#endif

void copy_streaming(std::byte* to, const std::byte* from, size_t num_lines) {
  for (size_t i = 0; i < num_lines; ++i, to += kCacheLine, from += kCacheLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + 16 * kCacheLine, _MM_HINT_NTA);
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
}

}  // namespace

double steady_now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void sleep_until(double deadline_s) {
  const double whole = std::floor(deadline_s);
  const timespec until{static_cast<time_t>(whole), static_cast<long>((deadline_s - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes >= kStreamingBytes) {
    const size_t head = -reinterpret_cast<uintptr_t>(target) % kCacheLine;
    std::memcpy(target, source, head);
    const size_t num_lines = (bytes - head) / kCacheLine;
    copy_streaming(target + head, source + head, num_lines);
    const size_t done = head + num_lines * kCacheLine;
    target += done, source += done, bytes -= done;
  }
  if (bytes > 0) std::memcpy(target, source, bytes);
}

double Link::begin_copy(size_t bytes, double ready_s) {
  std::lock_guard lock(mutex_);
  const double begin_s = std::max(ready_s, free_at_s_);
  free_at_s_ = begin_s + static_cast<double>(bytes) / bytes_per_s_;
  return begin_s;
}

double Link::copy(void* to, const void* from, size_t bytes, double ready_s) {
  if (bytes_per_s_ <= 0) {
    copy_bytes(to, from, bytes);
    return steady_now_s();
  }
  const double begin_s = begin_copy(bytes, ready_s);
  double deadline_s = begin_s;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    copy_bytes(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at, piece);
    deadline_s = begin_s + static_cast<double>(at + piece) / bytes_per_s_;
    sleep_until(deadline_s);
  }
  return deadline_s;
}

}  // namespace ebb
