// Memory for the planes of a benchmark of cpu_adam, in huge pages where the system gives them.
#pragma once

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "cpu_adam/adamw.h"

namespace ebb::bench {

/// Mapped, not touched. Ends the program where there is no memory for it.
class HugePages {
 public:
  explicit HugePages(size_t bytes) : bytes_(bytes) {
    void* const data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      fmt::print(stderr, "no memory for {} bytes; give fewer parameters\n", bytes);
      std::exit(2);
    }
    madvise(data, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(data);
  }
  ~HugePages() { munmap(data_, bytes_); }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  size_t bytes_;
  std::byte* data_;
};

/// Between planes. Four a multiple of 128 MiB apart, as those of 32 Mi fp32 are, share banks of
/// memory: a step then takes up to three times as long. Planes at home are buffers of their own,
/// which reserve_addresses() puts 2 MiB further apart than their size.
inline constexpr size_t kPlaneGap = size_t{2} << 20;

/// What planes_in() needs at most.
inline size_t planes_bytes(int64_t n) { return static_cast<size_t>(n) * 16 + 4 * kPlaneGap; }

/// Planes of `n` elements one behind the other from the start of `memory`.
inline Planes planes_in(const HugePages& memory, DType weight, DType gradient, int64_t n) {
  std::byte* next = memory.span().data();
  const auto take = [&](size_t element_bytes) {
    return std::exchange(next, next + static_cast<size_t>(n) * element_bytes + kPlaneGap);
  };
  Planes planes{.weight_dtype = weight, .gradient_dtype = gradient};
  planes.weight = take(size_of(weight));
  if (weight == DType::BF16) planes.low = reinterpret_cast<int16_t*>(take(2));
  planes.momentum = reinterpret_cast<float*>(take(4));
  planes.variance = reinterpret_cast<float*>(take(4));
  planes.gradient = take(size_of(gradient));
  return planes;
}

/// Bits of `i` in an order that looks random.
inline uint32_t scramble(int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace ebb::bench
