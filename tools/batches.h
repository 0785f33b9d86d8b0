// Micro-batches of token data, in host memory that is taken once: tokens, positions and next-token
// targets.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/sample_order.h"
#include "io/token_data.h"
#include "scheduler/trainer.h"

namespace ebb {

struct BatchShape {
  int64_t num_batches = 1;  ///< micro-batches loaded together: of a step, or of an evaluation
  int64_t batch_size = 1;   ///< sequences in a micro-batch
  int64_t length = 1;       ///< tokens in a sequence

  uint64_t num_samples() const { return static_cast<uint64_t>(num_batches * batch_size); }
  uint64_t num_tokens() const { return num_samples() * static_cast<uint64_t>(length); }
};

class Batches {
 public:
  /// `data` must outlive this.
  Batches(const TokenData& data, const SampleOrder& order, const BatchShape& shape);

  /// The samples at positions [position, position + num_samples) of the order; valid until the next
  /// call.
  std::span<const MicroBatch> load(uint64_t position);
  const BatchShape& shape() const { return shape_; }
  const SampleOrder& order() const { return order_; }

 private:
  void load_sample(uint64_t sample, size_t slot);

  const TokenData& data_;
  SampleOrder order_;
  BatchShape shape_;
  std::vector<int32_t> tokens_, positions_, targets_, sample_;
  std::vector<MicroBatch> batches_;
};

}  // namespace ebb
