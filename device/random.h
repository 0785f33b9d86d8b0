// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011) and numbers that are computed from its words.
//
// Every number is a pure function of a key and a counter. So it does not depend on the order of the
// draws, the chunks, the addresses or the number of threads. Thread-safe; nothing is stored.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace ebb {

/// The purpose of random numbers. Each purpose has its own key for one seed.
enum class RandomUse : uint32_t { Weights = 1, SampleOrder = 2, Dropout = 3, Sampling = 4 };

/// 128 random bits of a 128-bit counter and a 64-bit key.
constexpr std::array<uint32_t, 4> philox4x32(uint64_t counter_lo, uint64_t counter_hi,
                                             uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> x = {
      static_cast<uint32_t>(counter_lo), static_cast<uint32_t>(counter_lo >> 32),
      static_cast<uint32_t>(counter_hi), static_cast<uint32_t>(counter_hi >> 32)};
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * x[0];
    const uint64_t product1 = kMultiplier1 * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

constexpr uint64_t random_key(uint64_t seed, RandomUse use) {
  const auto words = philox4x32(static_cast<uint64_t>(use), 0, seed);
  return words[0] | uint64_t{words[1]} << 32;
}

/// Uniform in the open interval (0, 1): never 0, so its logarithm is finite.
constexpr double uniform(uint32_t word) { return (word + 0.5) * 0x1p-32; }

/// Two independent standard normal numbers from two random words (Box-Muller, in double).
inline std::pair<float, float> normal_pair(uint32_t word0, uint32_t word1) {
  const double radius = std::sqrt(-2 * std::log(uniform(word0)));
  const double angle = 2 * std::numbers::pi * uniform(word1);
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace ebb
