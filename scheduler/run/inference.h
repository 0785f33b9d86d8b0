// Runs only the forward of a model. Host memory holds the weights and no other planes: 2 bytes a
// parameter in bf16. The device holds as many weights as its budget allows.
//
//   const ForwardSpec forward{.model = &model};
//   PreparedInference prepared = prepare_inference({&forward, 1}, options, budgets);
//   Inference inference(*device, prepared);
//   double loss = inference.run(0, micro_batch);
//
// Each forward has one shape of micro-batch. Evaluation has one forward; generation has two, one
// for the prompt and one for a token. All forwards share the weights, and they share persistent
// inputs (InputSpec) of the same name. Blocks that the largest call does not need hold resident
// weights from run to run.
//
// The constructor allocates all memory. After the first run of each forward, a run allocates
// nothing.
// Results depend on the models, the weights and the inputs only, not on budgets, chunk size or the
// number of threads; they are the results of Trainer::evaluate().
//
// Thread-safety: one thread calls an Inference. Broken contracts are LogicErrors.
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
  /// `device` and `prepared` must outlive the inference. The weights get their initial values from
  /// the seed, or zeros without options.random_weights. Persistent inputs are zero at first. Throws
  /// OutOfMemory; ConfigError if the plan was made for a host device and `device` is a GPU, or for
  /// fewer threads.
  Inference(Device& device, const PreparedInference& prepared);
  ~Inference();

  /// Runs a forward; `forward` is its index in PreparedInference::forwards. Returns the sum of the
  /// losses of the micro-batch, or 0 if the forward has no loss. The micro-batch does not contain
  /// persistent inputs. After this function has thrown, the inference must not be used.
  double run(size_t forward, const MicroBatch& micro_batch);
  /// The results of the last run in host memory, valid until the next: losses of shape (num_losses)
  /// in fp32, and logits of shape (logits_rows, num_classes) in the type of the activations
  /// (ForwardSpec). Null if the run has no such result.
  Tensor losses() const;
  Tensor logits() const;
  /// Reads the logits as fp32, from row `first_row` on. REQUIRES: `values` is a whole number of
  /// rows, and they exist.
  void read_logits(int64_t first_row, std::span<float> values) const;
  /// The bytes that the last run loaded, including its warm-up plan if one ran before it.
  size_t loaded_bytes() const;

  const Layout& layout() const;
  /// Read or write elements [first, first + values.size()) of the parameter with this id in
  /// Model::parameters(), or a whole parameter by its name. Throw ConfigError if no parameter has
  /// the name. Values are rounded to the type of the weights as training rounds masters. A write
  /// drops all weights from the device; the next run loads what it needs.
  void read_parameter(ParameterId id, uint64_t first, std::span<float> values) const;
  void write_parameter(ParameterId id, uint64_t first, std::span<const float> values);
  std::vector<float> read_parameter(std::string_view name) const;
  void write_parameter(std::string_view name, std::span<const float> values);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb
