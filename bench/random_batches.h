// Random tokens for a step. They use only half of the vocabulary, so that the loss can decrease.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/run/trainer.h"

namespace ebb::bench {

class RandomBatches {
 public:
  RandomBatches(int64_t vocabulary, int64_t batch_size, int64_t length, uint32_t num_batches)
      : shape_{batch_size, length} {
    const auto n = static_cast<size_t>(batch_size * length);
    uint32_t state = 1;
    tokens_.resize(num_batches * n + 1);
    for (int32_t& t : tokens_) {
      state = state * 1664525u + 1013904223u;
      t = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocabulary / 2));
    }
    positions_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      positions_[i] = static_cast<int32_t>(i % static_cast<size_t>(length));
    }
    for (uint32_t k = 0; k < num_batches; ++k) {
      batches_.push_back(
          {{view(&tokens_[k * n]), view(positions_.data()), view(&tokens_[k * n + 1])}, n});
    }
  }
  std::span<const MicroBatch> batches() const { return batches_; }

 private:
  Tensor view(int32_t* data) const {
    return {reinterpret_cast<std::byte*>(data), DType::I32, shape_};
  }
  Shape shape_;
  std::vector<int32_t> tokens_, positions_;
  std::vector<MicroBatch> batches_;
};

}  // namespace ebb::bench
