// Memory for the planes of a benchmark of cpu_adam.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "bench/huge_pages.h"
#include "cpu_adam/adamw.h"

namespace ebb::bench {

/// Between planes. If four planes are a multiple of 128 MiB apart, as those of 32 Mi fp32 would be,
/// they share banks of memory, and a step takes up to three times as long. The planes of a trainer
/// are buffers of their own, which reserve_addresses() puts 2 MiB further apart than their size.
inline constexpr size_t kPlaneGap = size_t{2} << 20;

/// The largest number of bytes that planes_in() needs.
inline size_t planes_bytes(int64_t n) { return static_cast<size_t>(n) * 16 + 4 * kPlaneGap; }

/// Planes of `n` elements, one after the other, from the start of `memory`.
inline Planes planes_in(const HugePages& memory, DType weight, DType gradient, int64_t n) {
  std::byte* next = memory.data();
  const auto take = [&](size_t bytes) { return std::exchange(next, next + bytes + kPlaneGap); };
  const auto num_elements = static_cast<size_t>(n);
  Planes planes{.weight_dtype = weight, .gradient_dtype = gradient};
  size_t plane = 0;
  for (const PlaneInfo& info : state_planes(weight))
    planes[plane++] = take(info.bytes(num_elements));
  planes.gradient = take(num_elements * size_of(gradient));
  return planes;
}

struct MomentPlanes {
  float *momentum, *variance;
};
/// The moments are the last two planes of AdamW.
inline MomentPlanes moments_of(const Planes& planes) {
  const size_t last = state_planes(planes.weight_dtype).size() - 1;
  return {reinterpret_cast<float*>(planes[last - 1]), reinterpret_cast<float*>(planes[last])};
}

inline void clear_moments(const Planes& planes, int64_t n) {
  const auto [momentum, variance] = moments_of(planes);
  std::fill_n(momentum, n, 0.0f);
  std::fill_n(variance, n, 0.0f);
}

/// Bits of `i` in an order that looks random.
inline uint32_t scramble(int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace ebb::bench
