// The pace of an emulated network, in one direction of one rank: one copy passes after the other.
//
// Thread-safety: any thread may call passes_at().
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace ebb {

class NetworkPace {
 public:
  /// 0: there is no limit.
  explicit NetworkPace(double bytes_per_s = 0) : bytes_per_s_(bytes_per_s) {}
  bool is_emulated() const { return bytes_per_s_ > 0; }

  /// When bytes have passed that were ready at `ready_s`, a time of system/clock.h. Called in the
  /// order in which they pass. REQUIRES: is_emulated().
  double passes_at(size_t bytes, double ready_s) {
    const std::lock_guard lock(mutex_);
    free_at_s_ = std::max(ready_s, free_at_s_) + static_cast<double>(bytes) / bytes_per_s_;
    return free_at_s_;
  }

 private:
  const double bytes_per_s_;
  std::mutex mutex_;
  double free_at_s_ = 0;
};

}  // namespace ebb
