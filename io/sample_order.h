// The order of the samples in a run.
//
// Positions count samples from the start of the run, through all epochs. A step at position p uses
// the positions [p, p + B*K) for K micro-batches of B samples each, and continues in the next epoch
// when one ends. The order Shuffled is a keyed permutation of [0, num_samples) per epoch. The
// permutation is computed and not stored, so it takes no memory.
//
// Thread-safe (immutable).
#pragma once

#include <cstdint>

namespace ebb {

enum class DataOrder : uint8_t { Shuffled, Sequential };

class SampleOrder {
 public:
  /// REQUIRES: num_samples > 0.
  SampleOrder(uint64_t num_samples, DataOrder order, uint64_t seed);

  uint64_t num_samples() const { return num_samples_; }
  /// The epoch of a position, from 0.
  uint64_t epoch(uint64_t position) const { return position / num_samples_; }
  /// The index i of the sample at a position; its tokens are [i*T, i*T+T] (token_data.h).
  uint64_t sample(uint64_t position) const;

 private:
  uint64_t permute_once(uint64_t element, uint64_t epoch) const;

  uint64_t num_samples_;
  DataOrder order_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace ebb
