// Ends the process if a test hangs, so that a wait that never returns fails this test only and does
// not run into the time-out of the whole suite. ThreadSanitizer makes a test ten times as long, and
// several programs may run at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace ebb::test {

class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit = std::chrono::seconds(300))
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
          std::fputs("watchdog: the test hangs\n", stderr);
          std::abort();
        }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace ebb::test
