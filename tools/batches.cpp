#include "tools/batches.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {

Batches::Batches(const SampleSource& source, const SampleOrder& order, const BatchShape& shape,
                 std::span<const InputSpec> inputs)
    : source_(source),
      order_(order),
      shape_(shape),
      tokens_(shape.num_tokens()),
      positions_(shape.num_tokens()),
      targets_(shape.num_tokens()),
      document_starts_(shape.num_tokens(), 0),
      zeros_(shape.num_tokens(), 0),
      sample_(static_cast<size_t>(shape.length) + 1),
      starts_(sample_.size()) {
  const auto length = static_cast<size_t>(shape.length);
  for (size_t i = 0; i < positions_.size(); ++i) positions_[i] = static_cast<int32_t>(i % length);
  std::vector<std::string> names = {"tokens", "positions", "targets"};
  if (!inputs.empty()) names.clear();
  for (const InputSpec& input : inputs) names.push_back(input.name);
  const size_t batch_tokens = static_cast<size_t>(shape.batch_size) * length;
  for (int64_t i = 0; i < shape.num_batches; ++i) {
    MicroBatch& batch = batches_.emplace_back();
    for (const std::string& name : names) {
      int32_t* const values = values_of(name).data() + static_cast<size_t>(i) * batch_tokens;
      batch.inputs.push_back(
          {reinterpret_cast<std::byte*>(values), DType::I32, {shape.batch_size, shape.length}});
    }
  }
}

std::vector<int32_t>& Batches::values_of(const std::string& input) {
  if (input == "tokens") return tokens_;
  if (input == "positions") return positions_;
  if (input == "targets") return targets_;
  if (input == "document_starts") return document_starts_;
  EBB_CHECK(input == "token_types", fmt::format("token data has no input '{}'", input));
  return zeros_;
}

std::span<int32_t> Batches::row(std::vector<int32_t>& values, size_t slot) const {
  const auto length = static_cast<size_t>(shape_.length);
  return std::span(values).subspan(slot * length, length);
}

std::span<const MicroBatch> Batches::load(uint64_t position) {
  for (uint64_t i = 0; i < shape_.num_samples(); ++i) load_sample(order_.sample(position + i), i);
  count_targets();
  return batches_;
}

std::span<const MicroBatch> Batches::load_in_first_epoch(uint64_t position) {
  load(position);
  for (uint64_t i = 0; i < shape_.num_samples(); ++i) {
    if (position + i >= order_.num_samples()) std::ranges::fill(row(targets_, i), kIgnoredLabel);
  }
  count_targets();
  return batches_;
}

void Batches::load_sample(uint64_t sample, size_t slot) {
  const auto length = static_cast<size_t>(shape_.length);
  const uint64_t number = source_.chosen == nullptr ? sample : source_.chosen->at(sample);
  const uint64_t first = number * length;
  source_.tokens.read(first, sample_);
  std::copy_n(sample_.begin(), length, row(tokens_, slot).begin());
  if (source_.documents != nullptr) {
    source_.documents->read_starts(first, starts_);
    restart_positions(slot);
  }
  const std::span<int32_t> targets = row(targets_, slot);
  if (source_.labels != nullptr) return source_.labels->read(first, targets);
  for (size_t i = 0; i < length; ++i) {
    const bool ends = starts_[i + 1] == static_cast<int32_t>(i + 1);  // a document
    targets[i] = ends ? kIgnoredLabel : sample_[i + 1];
  }
}

void Batches::restart_positions(size_t slot) {
  const std::span<int32_t> starts = row(document_starts_, slot), positions = row(positions_, slot);
  for (size_t i = 0; i < starts.size(); ++i) {
    starts[i] = starts_[i];
    positions[i] = static_cast<int32_t>(i) - starts_[i];
  }
}

void Batches::count_targets() {
  const size_t batch_tokens = static_cast<size_t>(shape_.batch_size * shape_.length);
  for (size_t i = 0; i < batches_.size(); ++i) {
    const auto targets = std::span(targets_).subspan(i * batch_tokens, batch_tokens);
    const auto num_ignored = static_cast<uint64_t>(std::ranges::count(targets, kIgnoredLabel));
    batches_[i].num_targets = batch_tokens - num_ignored;
  }
}

uint64_t num_targets(std::span<const MicroBatch> batches) {
  uint64_t count = 0;
  for (const MicroBatch& batch : batches) count += batch.num_targets;
  return count;
}

}  // namespace ebb
