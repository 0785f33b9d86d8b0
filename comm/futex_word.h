// A 32-bit number in memory of one or of several processes, on which threads can sleep.
//
// Memory that is all zero is a valid FutexWord of value 0. So a process may cast zeroed shared
// memory to it. What a thread wrote before raise() is visible to a thread whose load() returned the
// raised value; ThreadSanitizer sees this order, too.
//
// Thread-safety: any thread of any process that maps the memory may call each method. One thread at
// a time raises a word.
#pragma once

#include <atomic>
#include <cstdint>

namespace ebb {

class FutexWord {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  /// Stores `value` and wakes all threads that sleep on this word.
  void raise(uint32_t value);

  /// Sleeps while the word is `seen`, for at most `limit_s` seconds; may also return earlier.
  void sleep(uint32_t seen, double limit_s) const;

 private:
  std::atomic<uint32_t> value_;
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
};

static_assert(sizeof(FutexWord) == sizeof(uint32_t));

}  // namespace ebb
