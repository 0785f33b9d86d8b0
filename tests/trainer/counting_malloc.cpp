#include "tests/trainer/counting_malloc.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<uint64_t> num_calls = 0;
}  // namespace

uint64_t ebb::test::num_mallocs() { return num_calls.load(); }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool ebb::test::counts_mallocs() { return false; }

#else

bool ebb::test::counts_mallocs() { return true; }

// The allocation functions of the C library, under the names that it offers to programs that
// replace malloc. free() is not replaced.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(data, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, size_t alignment, size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  *data = __libc_memalign(alignment, bytes);
  return *data != nullptr ? 0 : ENOMEM;
}
// oneTBB's allocator gets its memory from mmap.
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

#endif
