// Bodies that take turns: each on a thread of its own, one at a time.
//
// Ordinary code that calls pass() now and then can so be run in steps, several copies of it in
// step with one another, without being written for it. What one body did before it passed its turn
// happens before what the next does.
//
// Thread-safety: one caller of run(). Nothing allocates after construction. An exception ends the
// run: bodies that wait are unwound (pass() throws in them; do not catch it), those that have not
// begun do not begin, and run() rethrows the first. ConfigError where the system allows fewer
// threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ebb {

class Turns {
 public:
  explicit Turns(uint32_t num_threads);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Runs body(0) until it passes its turn or ends, then body(1), ..., then body(0) again, until
  /// all have ended. REQUIRES: count is at most the number of threads.
  template <class Body>
  void run(uint32_t count, const Body& body) {
    run_erased(count, &body, [](const void* b, uint32_t i) { (*static_cast<const Body*>(b))(i); });
  }
  /// Inside body(i): lets the others have their turns.
  void pass(uint32_t i);

 private:
  struct Seat {
    std::condition_variable called;
    bool ended = true;
  };
  struct Abandoned {};

  void run_erased(uint32_t count, const void* body, void (*call)(const void*, uint32_t));
  void work(uint32_t i);
  void stop();
  void wait_for_turn(std::unique_lock<std::mutex>& lock, uint32_t i);
  void hand_on(uint32_t from, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable all_ended_;
  std::vector<std::unique_ptr<Seat>> seats_;
  uint32_t count_ = 0;
  uint32_t turn_ = UINT32_MAX;
  bool stop_ = false;
  const void* body_ = nullptr;
  void (*call_)(const void*, uint32_t) = nullptr;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace ebb
