#include "tools/batches.h"

#include <algorithm>

namespace ebb {

Batches::Batches(const TokenData& data, const SampleOrder& order, const BatchShape& shape)
    : data_(data),
      order_(order),
      shape_(shape),
      tokens_(shape.num_tokens()),
      positions_(shape.num_tokens()),
      targets_(shape.num_tokens()),
      sample_(static_cast<size_t>(shape.length) + 1) {
  const auto length = static_cast<size_t>(shape.length);
  for (size_t i = 0; i < positions_.size(); ++i) positions_[i] = static_cast<int32_t>(i % length);
  const size_t batch_tokens = static_cast<size_t>(shape.batch_size) * length;
  for (int64_t i = 0; i < shape.num_batches; ++i) {
    const auto view = [&](std::vector<int32_t>& values) {
      return Tensor{
          reinterpret_cast<std::byte*>(values.data() + static_cast<size_t>(i) * batch_tokens),
          DType::I32,
          {shape.batch_size, shape.length}};
    };
    batches_.push_back(
        {.inputs = {view(tokens_), view(positions_), view(targets_)}, .num_targets = batch_tokens});
  }
}

std::span<const MicroBatch> Batches::load(uint64_t position) {
  for (uint64_t i = 0; i < shape_.num_samples(); ++i) load_sample(order_.sample(position + i), i);
  return batches_;
}

void Batches::load_sample(uint64_t sample, size_t slot) {
  const auto length = static_cast<size_t>(shape_.length);
  data_.read(sample * length, sample_);
  std::copy(sample_.begin(), sample_.end() - 1,
            tokens_.begin() + static_cast<ptrdiff_t>(slot * length));
  std::copy(sample_.begin() + 1, sample_.end(),
            targets_.begin() + static_cast<ptrdiff_t>(slot * length));
}

}  // namespace ebb
