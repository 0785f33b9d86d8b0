// The choice of the elements that dropout keeps: a pure function of a key and of an element's
// position, by Philox (device/random.h). So the choice is the same on every device, in a
// recomputation, at any address, and for any number of micro-batches. The backward computes the
// mask again.
#pragma once

#include <cstdint>

#include "device/random.h"

namespace ebb {

/// The key and the position of one dropout in a model, for one micro-batch of one step.
struct Dropout {
  float probability = 0;      ///< of an element to become 0; below 1
  uint64_t key = 0;           ///< of the run: random_key(seed, RandomUse::Dropout)
  uint32_t step = 0;          ///< of the run
  uint32_t first_sample = 0;  ///< the step's sample in the tensor's first row
  uint16_t site = 0;          ///< the number of this dropout in the model

  explicit constexpr operator bool() const { return probability > 0; }
  /// An element is kept if its random word is not below the threshold.
  constexpr uint32_t threshold() const {
    return static_cast<uint32_t>(probability * 0x1p32f);  // exact
  }
  /// The factor of the elements that are kept. It preserves the mean.
  constexpr float kept_factor() const {
    return static_cast<float>(1 / (1 - static_cast<double>(probability)));
  }
  /// The upper half of the counter. `part` is the head in attention, so each head has other
  /// numbers.
  constexpr uint64_t counter_hi(uint32_t part) const {
    return uint64_t{step} | uint64_t{site} << 32 | uint64_t{part} << 48;
  }
};

/// The most tokens in a row for which 32 bits number all groups of four (query, key) pairs.
inline constexpr int64_t kMostDropoutTokens = int64_t{1} << 17;

/// The random words of the elements 4 group to 4 group + 3 of a row (a sample) of the tensor.
constexpr std::array<uint32_t, 4> dropout_words(const Dropout& d, uint32_t row, uint32_t part,
                                                uint32_t group) {
  return philox4x32(uint64_t{group} | uint64_t{d.first_sample + row} << 32, d.counter_hi(part),
                    d.key);
}

/// The group of an attention weight: four consecutive keys of one query share a group.
constexpr uint32_t dropout_group(uint32_t query, uint32_t key, uint32_t num_tokens) {
  return query * ((num_tokens + 3) / 4) + key / 4;
}

}  // namespace ebb
