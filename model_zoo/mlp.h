// A multi-layer perceptron classifier: linear layers with ReLU between them, and cross-entropy at
// the end. Thread-safe: immutable after construction.
#pragma once

#include <vector>

#include "autograd/model.h"

namespace ebb {

/// Inputs: x (B, widths[0]) of the model's type, labels (B) int32.
class Mlp : public Model {
 public:
  /// `widths`: features, hidden sizes, classes. Throws ConfigError if there are fewer than two
  /// widths or a width is below 1.
  Mlp(std::vector<int64_t> widths, int64_t micro_batch_size, DType dtype);

  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override;
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override;

 private:
  struct Layer {
    ParameterId weight, bias;
  };
  std::vector<int64_t> widths_;
  int64_t micro_batch_size_;
  DType dtype_;
  Parameters parameters_;
  std::vector<Layer> layers_;
};

}  // namespace ebb
