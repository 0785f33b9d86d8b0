// A counter of the work that one thread has done. One other thread can wait until the counter
// reaches a number; it is not woken for smaller numbers.
//
// Thread-safety: any thread may call set() and cancel(). One thread at a time may call wait_for().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ebb {

class Progress {
 public:
  /// Sets the count to 0. REQUIRES: no thread is waiting.
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

  /// Ends the current wait and all later waits at once.
  void cancel() noexcept {
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    changed_.notify_one();
  }

  /// Waits until the count is at least `count`. Returns false if cancel() was called.
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
