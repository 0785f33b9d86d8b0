// Which sample comes at which position of a run.
//
// Positions count samples from the start of the run, through all epochs: a step that begins at
// position p takes positions [p, p + B*K), whatever B and K are, and goes on into the next epoch
// when one ends. Shuffled is a keyed permutation of [0, num_samples) per epoch, computed and not
// stored, so data of any size costs no memory.
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
  /// The epoch, from 0, that a position belongs to.
  uint64_t epoch(uint64_t position) const { return position / num_samples_; }
  /// The sample at a position: tokens [i*T, i*T+T].
  uint64_t sample(uint64_t position) const;

 private:
  uint64_t permute_once(uint64_t element, uint64_t epoch) const;

  uint64_t num_samples_;
  DataOrder order_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace ebb
