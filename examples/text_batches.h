// Micro-batches of text for a model that predicts the next token: what the examples that train on
// text share.
#pragma once

#include <ebb/ebb.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

class TextBatches {
 public:
  /// `num_batches` micro-batches of `batch_size` sequences of `length` tokens. `data` must outlive
  /// this.
  TextBatches(const ebb::TokenData& data, int64_t num_batches, int64_t batch_size, int64_t length)
      : data_(data), length_(static_cast<size_t>(length)), sample_(length_ + 1) {
    const auto num_samples = static_cast<size_t>(num_batches * batch_size);
    for (std::vector<int32_t>* all : {&tokens_, &positions_, &targets_}) {
      all->resize(num_samples * length_);
    }
    for (size_t i = 0; i < positions_.size(); ++i) {
      positions_[i] = static_cast<int32_t>(i % length_);
    }
    const auto batch_tokens = static_cast<size_t>(batch_size * length);
    for (int64_t i = 0; i < num_batches; ++i) {
      const auto view = [&](std::vector<int32_t>& all) {
        return ebb::Tensor{
            reinterpret_cast<std::byte*>(&all[static_cast<size_t>(i) * batch_tokens]),
            ebb::DType::I32,
            {batch_size, length}};
      };
      batches_.push_back({.inputs = {view(tokens_), view(positions_), view(targets_)},
                          .num_targets = batch_tokens});
    }
  }

  /// Sample i = tokens [i * length, (i + 1) * length], the last of them a target alone.
  template <class SampleAt>
  std::span<const ebb::MicroBatch> load(SampleAt sample_at) {
    for (size_t i = 0; i < tokens_.size() / length_; ++i) {
      data_.read(sample_at(i) * length_, sample_);
      std::copy(sample_.begin(), sample_.end() - 1, tokens_.begin() + offset(i));
      std::copy(sample_.begin() + 1, sample_.end(), targets_.begin() + offset(i));
    }
    return batches_;
  }

 private:
  std::ptrdiff_t offset(size_t sample) const {
    return static_cast<std::ptrdiff_t>(sample * length_);
  }

  const ebb::TokenData& data_;
  size_t length_;
  std::vector<int32_t> tokens_, positions_, targets_, sample_;
  std::vector<ebb::MicroBatch> batches_;
};
