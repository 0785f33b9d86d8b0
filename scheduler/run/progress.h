// How far one thread is, for one other that waits for it. The other is woken for the number that it
// waits for, and for none before.
//
// Thread-safety: set() and cancel() from any thread, wait_for() from one thread at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ebb {

class Progress {
 public:
  /// REQUIRES: nobody waits.
  void reset() {
    std::lock_guard lock(mutex_);
    count_ = 0;
  }

  void set(uint32_t count) {
    bool is_awaited = false;
    {
      std::lock_guard lock(mutex_);
      count_ = count;
      is_awaited = count >= awaited_;
    }
    if (is_awaited) changed_.notify_one();
  }

  /// Nobody waits any more, from now on.
  void cancel() noexcept {
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    changed_.notify_one();
  }

  /// Until it is `count` or more; false where it was given up.
  [[nodiscard]] bool wait_for(uint32_t count) {
    std::unique_lock lock(mutex_);
    awaited_ = count;
    changed_.wait(lock, [&] { return cancelled_ || count_ >= count; });
    awaited_ = kNobody;
    return !cancelled_;
  }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t count_ = 0;
  uint32_t awaited_ = kNobody;
  bool cancelled_ = false;
};

}  // namespace ebb
