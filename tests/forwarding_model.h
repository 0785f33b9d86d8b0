// A model that calls another one. A test overrides what it changes.
#pragma once

#include "autograd/model.h"

namespace ebb::test {

class ForwardingModel : public Model {
 public:
  /// `model` must outlive this object.
  explicit ForwardingModel(const Model& model) : model_(model) {}
  const Parameters& parameters() const override { return model_.parameters(); }
  std::vector<InputSpec> inputs() const override { return model_.inputs(); }
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    return model_.begin(tape, inputs);
  }
  uint32_t num_layers() const override { return model_.num_layers(); }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i,
                 Variable x) const override {
    return model_.layer(tape, inputs, i, x);
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    model_.end(tape, inputs, x);
  }

 protected:
  const Model& model_;
};

}  // namespace ebb::test
