// A stack of one's own that can be left and come back to on the same OS thread.
//
// The sanitizers are told: ThreadSanitizer takes each fiber for a thread and gets no order from a
// switch, AddressSanitizer knows whose stack it is on. That is what autograd/fiber.h cannot be used
// for, whose switches are ordered and save the signal mask. Not thread-safe: a fiber belongs to the
// OS thread that made it.
#pragma once

#include <cstddef>

namespace ebb::emulation {

class Fiber {
 public:
  /// Runs body(argument) at the first enter(); it must never return.
  Fiber(void (*body)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From the thread's own stack: runs the fiber until it leaves.
  void enter();
  /// From the fiber: goes back to whoever entered.
  void leave();

 private:
  static void start(Fiber* fiber);
  void arrive_in_fiber();

  void (*const body_)(void*);
  void* const argument_;
  std::byte* stack_ = nullptr;
  void* own_ = nullptr;     // stack pointer while it is not running
  void* caller_ = nullptr;  // of the thread's stack while it is
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
  void* own_tsan_ = nullptr;
  void* caller_tsan_ = nullptr;
};

}  // namespace ebb::emulation
