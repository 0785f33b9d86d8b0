// Which numbers dropout keeps: a pure function of a key and of where a number stands, by Philox
// (device/random.h). So it is the same when a value is computed again, wherever bytes lie, however
// a step is cut into micro-batches, and on every device; a backward makes its mask anew.
#pragma once

#include <cstdint>

#include "device/random.h"

namespace ebb {

/// Numbers of one place in a model, of one micro-batch of one step.
struct Dropout {
  float probability = 0;      ///< that a number becomes 0; below 1
  uint64_t key = 0;           ///< of the run: random_key(seed, RandomUse::Dropout)
  uint32_t step = 0;          ///< of the run
  uint32_t first_sample = 0;  ///< of the step's samples, that of the tensor's first row
  uint16_t site = 0;          ///< of the places in the model

  explicit constexpr operator bool() const { return probability > 0; }
  /// A number is kept where its word is not below.
  constexpr uint32_t threshold() const {
    return static_cast<uint32_t>(probability * 0x1p32f);  // exact
  }
  /// What is kept is multiplied with it, so that the mean stays.
  constexpr float kept_factor() const {
    return static_cast<float>(1 / (1 - static_cast<double>(probability)));
  }
  /// The counter's upper half: `part` tells heads of attention apart.
  constexpr uint64_t counter_hi(uint32_t part) const {
    return uint64_t{step} | uint64_t{site} << 32 | uint64_t{part} << 48;
  }
};

/// Tokens in a row whose attention has numbers enough: pairs of them, by four.
inline constexpr int64_t kMostDropoutTokens = int64_t{1} << 17;

/// Words of elements 4 group, 4 group + 1, ... of a row (a sample) of the tensor.
constexpr std::array<uint32_t, 4> dropout_words(const Dropout& d, uint32_t row, uint32_t part,
                                                uint32_t group) {
  return philox4x32(uint64_t{group} | uint64_t{d.first_sample + row} << 32, d.counter_hi(part),
                    d.key);
}

/// Of the weights of attention: the group of keys 4 i, 4 i + 1, ... for a query.
constexpr uint32_t dropout_group(uint32_t query, uint32_t key, uint32_t num_tokens) {
  return query * ((num_tokens + 3) / 4) + key / 4;
}

}  // namespace ebb
