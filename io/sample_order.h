// The order of the samples in a run.
//
// Positions count samples from the start of the run, through all epochs. A step at position p uses
// the positions [p, p + B*K) for K micro-batches of B samples each, and continues in the next epoch
// when one ends.
//
// Sequential is the order 0, 1, ..., num_samples - 1 in every epoch. Shuffled is a different
// permutation of [0, num_samples) in every epoch. The permutation is computed from the seed and the
// epoch. It is not stored, so it takes no memory. The same seed and the same number of samples give
// the same order on all machines and in all versions of Ebb.
//
// Thread-safe (immutable).
#pragma once

#include <cstdint>

namespace ebb {

enum class DataOrder : uint8_t { Shuffled, Sequential };

class SampleOrder {
 public:
  /// Sequential ignores the seed. REQUIRES: num_samples > 0; otherwise throws LogicError.
  SampleOrder(uint64_t num_samples, DataOrder order, uint64_t seed);

  uint64_t num_samples() const { return num_samples_; }
  /// The epoch of a position, from 0.
  uint64_t epoch(uint64_t position) const { return position / num_samples_; }
  /// The index of the sample at a position, less than num_samples(). token_data.h says which tokens
  /// a sample of token data has.
  uint64_t sample(uint64_t position) const;

 private:
  uint64_t permute_once(uint64_t element, uint64_t epoch) const;

  uint64_t num_samples_;
  DataOrder order_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace ebb
