#include "autograd/fiber.h"

#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "device/errors.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ebb {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;
/// Below the stack, which grows down: more than one function frame is likely to skip.
constexpr size_t kGuardBytes = size_t{1} << 20;

std::byte* create_stack() {
  void* const guard = mmap(nullptr, kGuardBytes + kStackBytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (guard == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  std::byte* const stack = static_cast<std::byte*>(guard) + kGuardBytes;
  if (mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(guard, kGuardBytes + kStackBytes);
    throw std::system_error(error, std::generic_category());
  }
  return stack;
}

}  // namespace

// makecontext() passes ints: a pointer is two.
Fiber::Fiber() : stack_(create_stack()) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#if defined(__SANITIZE_THREAD__)
  own_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_thread_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);  // enter() never left it
#endif
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

void Fiber::start(const Function& function) {
  EBB_CHECK(has_ended(), "a fiber runs one function at a time");
  function_ = function;
  pthread_sigmask(SIG_SETMASK, nullptr, &own_.uc_sigmask);  // the next switch sets this mask
  std::fegetenv(&floating_point_);
}

void Fiber::resume() {
#if defined(__SANITIZE_THREAD__)
  caller_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_thread_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, kStackBytes);
#endif
  swapcontext(&caller_, &own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_thread_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  own_fake_stack_ = nullptr;  // a function that returned does not use it again
  __sanitizer_start_switch_fiber(has_ended() ? nullptr : &own_fake_stack_, caller_stack_,
                                 caller_stack_bytes_);
#endif
  swapcontext(&own_, &caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* const fiber = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->caller_stack_, &fiber->caller_stack_bytes_);
#endif
  for (;;) {
    std::fesetenv(&fiber->floating_point_);
    fiber->function_();
    fiber->function_ = {};
    fiber->suspend();
  }
}

}  // namespace ebb
