// A model of products, softmaxes, concatenations and the mean squared error, and its training.
#pragma once

#include <vector>

#include "autograd/primitives.h"
#include "tests/trainer/cases.h"

namespace ebb::test {

/// Four residual layers of 128 channels on 24 rows of fp32.
class Regression : public Model {
 public:
  static constexpr int64_t kRows = 24, kChannels = 128;

  explicit Regression(DType dtype);
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override;
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override;
  uint32_t num_layers() const override { return std::size(layers_); }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i, Variable x) const override;
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override;

 private:
  struct Layer {
    ParameterId value, gate, merge;
  };
  ParameterId add(const std::string& name, int64_t columns);

  DType dtype_;
  Parameters parameters_;
  ParameterId in_ = 0;
  Layer layers_[4];
};

/// The inputs of a step, drawn from the seed.
class RegressionData {
 public:
  RegressionData(uint32_t num_micro_batches, uint64_t seed);
  RegressionData(const RegressionData&) = delete;
  const std::vector<MicroBatch>& batches() const { return batches_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<MicroBatch> batches_;
};

/// Trains the model as the case says.
Outcome regression_outcome(const TrainingCase& run);

}  // namespace ebb::test
