// The model: which of interleaved spirals does a point lie on?
#pragma once

#include <ebb/ebb.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

struct ClassifierSizes {
  int64_t batch = 64;
  int64_t channels = 512;
  uint32_t num_layers = 12;
};

/// Only the forward is written; the backward follows from it.
class Classifier : public ebb::Model {
 public:
  explicit Classifier(const ClassifierSizes& sizes);

  const ebb::Parameters& parameters() const override { return parameters_; }
  std::vector<ebb::InputSpec> inputs() const override;
  ebb::Variable begin(ebb::Tape& tape, std::span<const ebb::Tensor> inputs) const override;
  uint32_t num_layers() const override { return static_cast<uint32_t>(layers_.size()); }
  ebb::Variable layer(ebb::Tape& tape, std::span<const ebb::Tensor> inputs, uint32_t i,
                      ebb::Variable x) const override;
  void end(ebb::Tape& tape, std::span<const ebb::Tensor> inputs, ebb::Variable x) const override;

 private:
  struct Linear {
    ebb::ParameterId weight = 0, bias = 0;
  };
  struct Layer {
    Linear linear;
    ebb::ParameterId slope = 0;
  };

  Linear add_linear(const std::string& name, int64_t outputs, int64_t inputs, float deviation);

  ClassifierSizes sizes_;
  ebb::Parameters parameters_;
  Linear in_, out_;
  std::vector<Layer> layers_;
};
