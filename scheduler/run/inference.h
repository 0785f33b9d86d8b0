// Runs a model forward alone, with its weights at home and nothing else: 2 bytes a parameter in
// bf16. The device holds what its budget allows, as in training.
//
//   const ForwardSpec pass{.model = &model};
//   PreparedInference prepared = prepare_inference({&pass, 1}, options, budgets);
//   Inference inference(*device, prepared);
//   double loss = inference.run(0, micro_batch);
//
// A pass is one shape of micro-batch: evaluation has one, generation two, for the prompt and for a
// token. They share weights, and inputs that are kept (InputSpec) by their names. What the budget
// leaves beside the largest moment holds weights from run to run.
//
// prepare_inference() is pure and says what would fit (PlanError); an Inference takes every byte
// when it is made, and a run allocates nothing after each pass's first. One thread calls it.
// Results depend on models, weights and inputs only, never on budgets, chunk size or threads, and
// are those of Trainer::evaluate().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/layout.h"
#include "device/device.h"
#include "scheduler/run/micro_batch.h"
#include "scheduler/search/inference_preparation.h"

namespace ebb {

class Inference {
 public:
  /// `device` and `prepared` must outlive this.
  Inference(Device& device, const PreparedInference& prepared);
  ~Inference();

  /// The sum of the micro-batch's losses; 0 where the pass has none. Inputs that are kept are left
  /// out. After a throw it must not be used any more.
  double run(size_t forward, const MicroBatch& micro_batch);
  /// Of the last run, until the next: (rows) fp32, and (rows, classes) of the activations' type.
  Tensor losses() const;
  Tensor logits() const;
  /// Whole rows of the logits as fp32, from one on.
  void read_logits(int64_t first_row, std::span<float> values) const;
  /// Moved by the last run, what fills the device before a pass's first run among it.
  size_t loaded_bytes() const;

  const Layout& layout() const;
  /// Elements [first, first + values.size()) of a parameter's weights, by its id in
  /// Model::parameters(), or all of one, by its name (ConfigError where there is none): rounded to
  /// the options' type as training rounds its masters.
  void read_parameter(ParameterId id, uint64_t first, std::span<float> values) const;
  void write_parameter(ParameterId id, uint64_t first, std::span<const float> values);
  std::vector<float> read_parameter(std::string_view name) const;
  void write_parameter(std::string_view name, std::span<const float> values);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb
