// Zero-filled memory, in huge pages if the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>

namespace ebb::bench {

/// Maps the memory without touching it. Throws std::bad_alloc.
class HugePages {
 public:
  explicit HugePages(size_t bytes) : bytes_(bytes) {
    void* const data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(data);
  }
  ~HugePages() { munmap(data_, bytes_); }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  size_t bytes_;
  std::byte* data_;
};

}  // namespace ebb::bench
