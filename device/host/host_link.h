// The link between host and device: copies as fast as memory, or at the pace of an emulated link.
//
// A link carries one copy at a time. A copy takes bytes / bandwidth of wall time, counted from the
// time at which the link and the stream were ready. If a busy machine begins a copy late, the next
// copies make up for the delay. The copying thread sleeps most of the time, so the core is free for
// kernels.
//
// Thread-safety: every method may be called from any thread. Times are those of system/clock.h.
#pragma once

#include <cstddef>
#include <mutex>

namespace ebb {

class Link {
 public:
  struct Ended {
    double ideal_s = 0;  ///< the end on the emulated link, without delays of this machine
    double here_s = 0;   ///< the real end; later if memory is slower than the link
  };

  /// `bytes_per_s`: the rate of the emulated link; 0: no link is emulated.
  explicit Link(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  /// Copies and returns the times of the end. `ready_s`: the time from which the stream was ready.
  Ended copy(void* to, const void* from, size_t bytes, double ready_s);

 private:
  /// Reserves the link and returns the time at which this copy begins.
  double begin_copy(size_t bytes, double ready_s);

  const double bytes_per_s_;
  std::mutex mutex_;
  double free_at_s_ = 0;
};

}  // namespace ebb
