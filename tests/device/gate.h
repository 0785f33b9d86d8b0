// Blocks the thread of a stream until the test opens the gate. Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>

namespace ebb {

class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace ebb
