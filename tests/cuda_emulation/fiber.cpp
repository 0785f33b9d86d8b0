// Compiled without ThreadSanitizer, which would report switches between stacks as races.
#include "tests/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EBB_TELL_THREAD_SANITIZER)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

// Saves the registers that a call must preserve, changes the stack and returns on it.
extern "C" void ebb_switch_stacks(void** save, void* to);
extern "C" void ebb_first_entry();
asm(R"(
.text
.globl ebb_switch_stacks
.type ebb_switch_stacks, @function
ebb_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ebb_switch_stacks, .-ebb_switch_stacks
.globl ebb_first_entry
.type ebb_first_entry, @function
ebb_first_entry:
  movq %r12, %rdi
  callq *%r13
  ud2
.size ebb_first_entry, .-ebb_first_entry
)");

namespace ebb::emulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kPageBytes = 4096;

}  // namespace

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPageBytes, PROT_NONE);  // a stack that is too deep faults
  stack_ = static_cast<std::byte*>(memory);
  // The values that ebb_switch_stacks pops: r15, r14, r13, r12, rbx, rbp, and the return address.
  auto* top = reinterpret_cast<uintptr_t*>(stack_ + kStackBytes) - 9;
  top[2] = reinterpret_cast<uintptr_t>(&Fiber::start);  // r13
  top[3] = reinterpret_cast<uintptr_t>(this);           // r12
  top[6] = reinterpret_cast<uintptr_t>(&ebb_first_entry);
  own_ = top;
#if defined(EBB_TELL_THREAD_SANITIZER)
  own_tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(EBB_TELL_THREAD_SANITIZER)
  // The destruction of a fiber is ordered after the fiber's work.
  void* caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 1);
  __tsan_switch_to_fiber(caller, 0);
  __tsan_destroy_fiber(own_tsan_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  munmap(stack_, kStackBytes);
}

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_, kStackBytes);
#endif
#if defined(EBB_TELL_THREAD_SANITIZER)
  caller_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 1);  // 1: no order between here and there
#endif
  ebb_switch_stacks(&caller_, own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
#endif
#if defined(EBB_TELL_THREAD_SANITIZER)
  __tsan_switch_to_fiber(caller_tsan_, 1);
#endif
  ebb_switch_stacks(&own_, caller_);
  arrive_in_fiber();
}

void Fiber::arrive_in_fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::start(Fiber* fiber) {
  fiber->arrive_in_fiber();
  fiber->body_(fiber->argument_);
}

}  // namespace ebb::emulation
