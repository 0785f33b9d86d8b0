#include "device/host/host_link.h"

#include <algorithm>
#include <cstddef>

#include "system/clock.h"
#include "system/copy.h"

namespace ebb {
namespace {

/// The unit in which an emulated copy alternates between copying and sleeping.
constexpr size_t kPieceBytes = size_t{16} << 20;

}  // namespace

double Link::begin_copy(size_t bytes, double ready_s) {
  std::lock_guard lock(mutex_);
  const double begin_s = std::max(ready_s, free_at_s_);
  free_at_s_ = begin_s + static_cast<double>(bytes) / bytes_per_s_;
  return begin_s;
}

Link::Ended Link::copy(void* to, const void* from, size_t bytes, double ready_s) {
  if (bytes_per_s_ <= 0) {
    copy_bytes(to, from, bytes);
    const double now_s = steady_now_s();
    return {now_s, now_s};
  }
  const double begin_s = begin_copy(bytes, ready_s);
  double deadline_s = begin_s, here_s = begin_s;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - at);
    copy_bytes(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at, piece);
    deadline_s = begin_s + static_cast<double>(at + piece) / bytes_per_s_;
    here_s = std::max(deadline_s, steady_now_s());
    sleep_until(deadline_s);
  }
  return {deadline_s, here_s};
}

}  // namespace ebb
