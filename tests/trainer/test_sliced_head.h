// The model of the tests of a classifier that runs in slices of the vocabulary.
#pragma once

#include <array>

#include "autograd/primitives.h"
#include "tests/trainer/cases.h"

namespace ebb::test {

/// Embedding, two residual layers, and a head of 99 k parameters in five slices, the last of one
/// row. At the smallest chunk size no slice but the first begins at the start of a chunk.
class SlicedHead : public Model {
 public:
  static constexpr int64_t kVocabulary = 257, kChannels = 384;

  SlicedHead(DType dtype, bool tied, const ClassifierCut& cut) : dtype_(dtype), cut_(cut) {
    const Init normal = Init::normal(0.05f);
    wte_ = parameters_.add("wte", {kVocabulary, kChannels}, normal);
    wpe_ = parameters_.add("wpe", {kLength, kChannels}, normal);
    for (ParameterId& w : layers_) w = parameters_.add("layer", {kChannels, kChannels}, normal);
    norm_ = parameters_.add("norm", {kChannels}, Init::ones());
    bias_ = parameters_.add("bias", {kChannels}, Init::zeros());
    head_ = tied ? wte_ : parameters_.add("head", {kVocabulary, kChannels}, normal);
  }
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    const Shape shape{kMicroBatchSize, kLength};
    return {{"tokens", shape}, {"positions", shape}, {"targets", shape}};
  }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    return embedding(tape, inputs[0], inputs[1], wte_, wpe_, kChannels, dtype_);
  }
  uint32_t num_layers() const override { return static_cast<uint32_t>(layers_.size()); }
  Variable layer(Tape& tape, std::span<const Tensor>, uint32_t i, Variable x) const override {
    return add(tape, x, activation(tape, linear(tape, x, layers_[i]), Activation::GeluTanh));
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    x = layer_norm(tape, x, norm_, bias_);
    classifier_cross_entropy(tape, x, head_, kVocabulary, inputs[2], cut_);
  }

 private:
  DType dtype_;
  ClassifierCut cut_;
  Parameters parameters_;
  ParameterId wte_, wpe_, norm_, bias_, head_;
  std::array<ParameterId, 2> layers_;
};

/// A slice has 64 rows of the weight. Logits are computed for 24 tokens at a time.
inline constexpr ClassifierCut kCut{.weight_elements = 64 * SlicedHead::kChannels + 100,
                                    .logits = {.most_elements = 64 * 24}};

inline Result run(const Model& model, const TrainingCase& requested) {
  return train(model, prepare_case(model, requested), requested);
}

}  // namespace ebb::test
