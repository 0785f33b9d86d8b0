// A fiber: a stack of its own, on which code can be suspended and resumed on the same OS thread.
//
// Switches are announced to the sanitizers. ThreadSanitizer treats each fiber as a thread, and a
// switch is no synchronization. AddressSanitizer knows the current stack. Not thread-safe: a fiber
// belongs to the OS thread that made it.
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

  /// Called on the thread's own stack: runs the fiber until it calls leave().
  void enter();
  /// Called on the fiber: returns to the caller of enter().
  void leave();

 private:
  static void start(Fiber* fiber);
  void arrive_in_fiber();

  void (*const body_)(void*);
  void* const argument_;
  std::byte* stack_ = nullptr;
  void* own_ = nullptr;     // the fiber's stack pointer while it is suspended
  void* caller_ = nullptr;  // the thread's stack pointer while the fiber runs
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
  void* own_tsan_ = nullptr;
  void* caller_tsan_ = nullptr;
};

}  // namespace ebb::emulation
