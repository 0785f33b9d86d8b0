// The link between host and device: copies as fast as memory, or at the pace of an emulated link.
//
// A link carries one copy at a time. A copy is charged bytes / bandwidth of wall time, counted from
// when the link and the stream that copies were ready, not from when a busy machine got round to
// it: a late copy is caught up by the next ones. The copying thread sleeps most of that time, so
// the core is free for kernels.
//
// Thread-safety: every method may be called from any thread. Times are those of system/clock.h.
#pragma once

#include <cstddef>
#include <mutex>

namespace ebb {

class Link {
 public:
  struct Ended {
    double ideal_s = 0;  ///< on the emulated link, had the copy begun when it could
    double here_s = 0;   ///< as the bytes came: later where memory was slower than the link
  };

  /// `bytes_per_s` 0: nothing is emulated.
  explicit Link(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  /// Copies, and returns when the copy ended, had it begun at `ready_s` or when the link was free.
  Ended copy(void* to, const void* from, size_t bytes, double ready_s);

 private:
  /// Reserves the link and returns when this copy begins.
  double begin_copy(size_t bytes, double ready_s);

  const double bytes_per_s_;
  std::mutex mutex_;
  double free_at_s_ = 0;
};

}  // namespace ebb
