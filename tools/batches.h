// Loads micro-batches of token data, the inputs of the models in model_zoo. Host memory is
// allocated once.
//
// Targets are the next tokens, or labels. With documents, attention and positions restart at each
// document, and the last token of a document has no target. Token types are 0.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/model.h"
#include "io/document_file.h"
#include "io/label_file.h"
#include "io/sample_order.h"
#include "io/token_data.h"
#include "scheduler/run/trainer.h"

namespace ebb {

struct BatchShape {
  int64_t num_batches = 1;  ///< micro-batches of one step or one evaluation
  int64_t batch_size = 1;   ///< sequences in a micro-batch
  int64_t length = 1;       ///< tokens in a sequence

  uint64_t num_samples() const { return static_cast<uint64_t>(num_batches * batch_size); }
  uint64_t num_tokens() const { return num_samples() * static_cast<uint64_t>(length); }
};

/// The micro-batches that contain `num_samples` samples. The last one may have fewer samples than
/// the others.
inline uint64_t num_batches_for(uint64_t num_samples, int64_t batch_size) {
  const auto size = static_cast<uint64_t>(batch_size);
  return (num_samples + size - 1) / size;
}

/// The data from which samples are loaded. `labels` is null if the targets are the next tokens;
/// `documents` is null if each sample is one document. `chosen` has the numbers of the samples that
/// are read, in order; null: all.
struct SampleSource {
  SampleSource(const TokenData& data, const LabelFile* label_file = nullptr,
               const DocumentFile* document_file = nullptr,
               const std::vector<uint64_t>* chosen_samples = nullptr)
      : tokens(data), labels(label_file), documents(document_file), chosen(chosen_samples) {}

  const TokenData& tokens;
  const LabelFile* labels;
  const DocumentFile* documents;
  const std::vector<uint64_t>* chosen;
};

class Batches {
 public:
  /// `inputs` are the inputs of the model; empty: tokens, positions and targets. The data of
  /// `source` must outlive this object.
  Batches(const SampleSource& source, const SampleOrder& order, const BatchShape& shape,
          std::span<const InputSpec> inputs = {});

  /// Returns the samples at positions [position, position + num_samples) of the order. They are
  /// valid until the next call.
  std::span<const MicroBatch> load(uint64_t position);
  /// The same for one pass over the data, as in an evaluation: where the first epoch has no more
  /// samples, a row is filled up and its targets are ignored.
  std::span<const MicroBatch> load_in_first_epoch(uint64_t position);
  const BatchShape& shape() const { return shape_; }
  const SampleOrder& order() const { return order_; }

 private:
  /// Returns row `slot` of an input.
  std::span<int32_t> row(std::vector<int32_t>& values, size_t slot) const;
  std::vector<int32_t>& values_of(const std::string& input);
  void load_sample(uint64_t sample, size_t slot);
  void restart_positions(size_t slot);
  void count_targets();

  SampleSource source_;
  SampleOrder order_;
  BatchShape shape_;
  std::vector<int32_t> tokens_, positions_, targets_, document_starts_, zeros_;
  std::vector<int32_t> sample_, starts_;  // one token longer than a row
  std::vector<MicroBatch> batches_;
};

/// The number of targets of all micro-batches.
uint64_t num_targets(std::span<const MicroBatch> batches);

}  // namespace ebb
