// A function that can be suspended and resumed: it runs on a stack of its own, on the thread that
// resumes it.
//
// A switch takes a third of a microsecond on an AMD EPYC (Zen 5), and wakes no thread. The stack is
// as large as a thread's. The system gives it memory only as far as it is used, and a stack
// overflow faults. A function begins with the signal mask and the floating-point environment of the
// thread that starts it. Not thread-safe: the thread that starts a function also ends it. Nothing
// is allocated after construction.
#pragma once

#include <ucontext.h>

#include <cfenv>
#include <cstddef>

#include "device/inline_function.h"

namespace ebb {

class Fiber {
 public:
  using Function = InlineFunction<void(), 64>;

  /// Throws std::system_error where no addresses are left for another stack.
  Fiber();
  /// REQUIRES: has_ended().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Sets the function that resume() runs. It must not throw. REQUIRES: has_ended().
  void start(const Function& function);
  /// Runs the function until it suspends itself or returns. REQUIRES: !has_ended().
  void resume();
  /// Called inside of the function, outside of any catch clause: resume() returns to its caller.
  void suspend();
  bool has_ended() const { return !function_; }

 private:
  static void enter(unsigned high, unsigned low);

  std::byte* const stack_;
  Function function_ = {};
  ucontext_t own_ = {}, caller_ = {};
  std::fenv_t floating_point_ = {};
  // What the sanitizers need to know about a switch.
  void* own_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
  void* own_thread_ = nullptr;
  void* caller_thread_ = nullptr;
};

}  // namespace ebb
