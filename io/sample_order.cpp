#include "io/sample_order.h"

#include <algorithm>
#include <bit>

#include "device/errors.h"
#include "device/random.h"

namespace ebb {
namespace {

constexpr int kRounds = 8;

}  // namespace

SampleOrder::SampleOrder(uint64_t num_samples, DataOrder order, uint64_t seed)
    : num_samples_(num_samples),
      order_(order),
      key_(random_key(seed, RandomUse::SampleOrder)),
      half_bits_(0) {
  EBB_CHECK(num_samples > 0, "an order needs at least one sample");
  half_bits_ = std::max(1, static_cast<int>(std::bit_width(num_samples - 1) + 1) / 2);
}

uint64_t SampleOrder::sample(uint64_t position) const {
  const uint64_t element = position % num_samples_;
  if (order_ == DataOrder::Sequential) return element;
  // The network permutes the numbers below the next power of four. It is applied until the result
  // is below num_samples. This is a permutation of [0, num_samples) and takes fewer than four
  // rounds on average.
  uint64_t result = element;
  do {
    result = permute_once(result, epoch(position));
  } while (result >= num_samples_);
  return result;
}

/// A balanced Feistel network over 2 * half_bits_ bits.
uint64_t SampleOrder::permute_once(uint64_t element, uint64_t epoch) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = element >> half_bits_, right = element & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = philox4x32(right, epoch * kRounds + round, key_)[0];
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace ebb
