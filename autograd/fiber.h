// A function that stops in the middle and goes on later: on a stack of its own, on the thread of
// whoever runs it.
//
// A switch takes a third of a microsecond and wakes nobody. The stack is as large as a thread's;
// memory is taken as far as it was ever used, and a stack that is too deep faults. A function
// begins with the signal mask and the floating-point environment of who starts it. Not thread-safe;
// what one thread starts it also ends. Allocates nothing after construction.
#pragma once

#include <ucontext.h>

#include <cfenv>
#include <cstddef>

#include "device/inline_function.h"

namespace ebb {

class Fiber {
 public:
  using Function = InlineFunction<void(), 64>;

  /// std::system_error where there is no room for another stack.
  Fiber();
  /// REQUIRES: has_ended().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// What resume() will run. It must not throw. REQUIRES: has_ended().
  void start(const Function& function);
  /// Runs the function until it suspends itself or returns. REQUIRES: !has_ended().
  void resume();
  /// In the function, outside of any catch block: back to who resumed it.
  void suspend();
  bool has_ended() const { return !function_; }

 private:
  static void enter(unsigned high, unsigned low);

  std::byte* const stack_;
  Function function_ = {};
  ucontext_t own_ = {}, caller_ = {};
  std::fenv_t floating_point_ = {};
  // Of the sanitizers.
  void* own_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
  void* own_thread_ = nullptr;
  void* caller_thread_ = nullptr;
};

}  // namespace ebb
