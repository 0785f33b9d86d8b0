// Ctrl-C, SIGTERM, SIGHUP (a closed terminal), SIGUSR1 and SIGUSR2 (batch systems, before time is
// up): the first asks the run to end after its step, a second one ends the process at once if it
// comes at least `grace` after the first. Earlier ones are ignored, because some launchers send a
// signal twice. A caller may let the first signal end the process, too. A SIGHUP that was ignored
// before, as under nohup, stays ignored.
//
// Construct the object before any other thread starts: new threads inherit the blocked signals, and
// a thread of this class waits for these signals. The destructor restores the previous state.
// pending() may be called from any thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace ebb {

/// The exit code of a program that ends because of a signal: 130, 143, 129, 138 or 140.
constexpr int exit_code_of(int signal) { return 128 + signal; }

class Signals {
 public:
  /// `on_first` runs on the thread of this class when the first signal arrives, with its name. If
  /// `ends_at_once` then returns true, the signal ends the process, and `on_first` is not called.
  explicit Signals(std::function<void(const char* name)> on_first,
                   std::chrono::milliseconds grace = std::chrono::seconds(1),
                   std::function<bool()> ends_at_once = {});
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The number of the first signal; 0 if none has arrived.
  int pending() const { return pending_.load(std::memory_order_relaxed); }
  /// exit_code_of() the signal. REQUIRES: pending() != 0.
  int exit_code() const { return exit_code_of(pending()); }

 private:
  void wait_for_signals();

  void take(int signal);

  std::function<void(const char* name)> on_first_;
  const std::function<bool()> ends_at_once_;
  const std::chrono::milliseconds grace_;
  std::chrono::steady_clock::time_point first_time_{};
  sigset_t watched_;
  sigset_t before_;
  int signals_;  // signalfd
  int stop_;     // eventfd
  std::atomic<int> pending_ = 0;
  std::thread thread_;
};

}  // namespace ebb
