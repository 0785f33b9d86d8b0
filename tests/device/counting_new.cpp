#include "tests/device/counting_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> num_calls = 0;

void* count_and_allocate(size_t bytes, size_t alignment) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes > 0 ? bytes : 1) != 0) throw std::bad_alloc();
  return data;
}
}  // namespace

uint64_t ebb::num_news() { return num_calls.load(); }

void* operator new(size_t bytes) { return count_and_allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return count_and_allocate(bytes, static_cast<size_t>(alignment));
}
// std::stable_sort allocates its memory with this operator.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }
