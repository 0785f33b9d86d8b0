// Bit patterns for the state, and memory for an undo log.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "cpu_adam/undo.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test {

/// The bit patterns of the values.
enum class Pattern {
  Any,      ///< uniformly distributed bits
  Special,  ///< zeros, denormals, infinities, NaNs, the largest and smallest values, of both signs
  Trained,  ///< a new model after some steps
};

inline uint32_t special_bits(uint64_t random) {
  constexpr uint32_t kSpecial[] = {0u,          1u,          0x7fffffu,   0x800000u,   0x3f800000u,
                                   0x7f7fffffu, 0x7f7f8000u, 0x7f800000u, 0x7f800001u, 0x7fc00000u,
                                   0x7fffffffu, 0x00008000u, 0x3f808000u};
  return kSpecial[random % std::size(kSpecial)] | (random >> 32 & 1 ? 0x80000000u : 0u);
}

class RandomBits {
 public:
  RandomBits(Pattern pattern, uint64_t seed) : pattern_(pattern), random_(seed) {}
  uint32_t operator()() {
    const uint64_t random = random_();
    return pattern_ == Pattern::Special ? special_bits(random) : static_cast<uint32_t>(random);
  }

 private:
  Pattern pattern_;
  std::mt19937_64 random_;
};

/// Fills `count` elements of all planes and of the gradient.
inline void fill_with_bits(const Planes& planes, int64_t count, RandomBits random) {
  const auto put = [&](void* plane, int64_t i, size_t bytes) {
    const uint32_t bits = bytes == 2 ? random() >> 16 : random();
    std::memcpy(static_cast<std::byte*>(plane) + static_cast<size_t>(i) * bytes, &bits, bytes);
  };
  const NamedPlanes at = named(planes);
  for (int64_t i = 0; i < count; ++i) {
    put(at.weight, i, size_of(planes.weight_dtype));
    if (at.low) put(at.low, i, 2);
    if (at.master) {  // an fp16 weight is its rounded master
      put(at.master, i, 4);
      reinterpret_cast<F16*>(at.weight)[i] = F16(at.master[i]);
    }
    put(at.momentum, i, 4);
    put(at.variance, i, 4);
    put(const_cast<std::byte*>(planes.gradient), i, size_of(planes.gradient_dtype));
  }
}

/// Memory for an undo log, followed by canary bytes.
class LogMemory {
 public:
  explicit LogMemory(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kAlign, std::byte{0xA5}) {}
  std::span<std::byte> span() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return {memory_.data() + (kAlign - at % kAlign) % kAlign, bytes_};
  }
  bool intact() {
    const std::byte* const end = span().data() + bytes_;
    return std::all_of(end, end + kAlign, [](std::byte b) { return b == std::byte{0xA5}; });
  }

 private:
  static constexpr size_t kAlign = 64;
  size_t bytes_;
  std::vector<std::byte> memory_;
};

}  // namespace ebb::test
