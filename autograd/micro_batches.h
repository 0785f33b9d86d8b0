// Runs the micro-batches of a step through a model, in one of two orders.
//
// Horizontal: each micro-batch runs forward and backward through the whole model before the next
// one begins. Few activations exist at a time, but every weight is loaded for every micro-batch.
// Vertical: all micro-batches run through one layer before any of them enters the next, forward and
// then backward. Weights are loaded once for the forward and once for the backward, whatever the
// number of micro-batches, and the activations between the layers are kept for all of them. The
// gradients of one use of a parameter are added in the order of the micro-batches in both orders,
// so both give the same bits.
//
// A model is written for one micro-batch. In vertical order each micro-batch runs on a stack of its
// own and yields (autograd/coroutines.h) where a layer begins or ends, and between the calls of a
// layer that keeps all its activations.
//
// One caller at a time. Nothing is allocated after the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/coroutines.h"
#include "autograd/model.h"
#include "autograd/tape.h"

namespace ebb {

/// What one run is to compute.
struct MicroBatchesOptions {
  uint32_t count = 1;
  TapeOptions tape = {};
  std::span<const Tensor> inputs;  ///< those of micro-batch 0, then those of micro-batch 1, ...
  Tensor loss_total;               ///< (1) fp64
  float loss_gradient_scale = 1;
};

class MicroBatches {
 public:
  /// Called with the number of a micro-batch whenever it starts or goes on.
  using OnMicroBatch = InlineFunction<void(uint32_t), 64>;

  /// For at most `most` micro-batches; throws ConfigError for too many. All arguments must outlive
  /// this object.
  MicroBatches(const Model& model, Device& device, Stream& compute, Hooks& hooks, Arena& arena,
               bool vertical, uint32_t most);
  ~MicroBatches();

  void run(
      const MicroBatchesOptions& run, OnMicroBatch on_micro_batch = [](uint32_t) {});
  /// Layers of the model, as counted in the last run.
  uint32_t num_layers() const { return tapes_[0]->num_layers(); }

 private:
  class Yielder;

  void begin(const MicroBatchesOptions& run, uint32_t k, Tape& tape, YieldPoint* yield_point) const;
  void forward(const MicroBatchesOptions& run, uint32_t k, Tape& tape) const;
  void run_horizontally(const MicroBatchesOptions& run, OnMicroBatch& on_micro_batch);
  void run_vertically(const MicroBatchesOptions& run, OnMicroBatch& on_micro_batch);

  const Model& model_;
  const bool vertical_;
  const size_t num_inputs_;
  std::vector<std::unique_ptr<Tape>> tapes_;  // one, or one for each micro-batch
  std::vector<std::unique_ptr<Yielder>> yielders_;
  std::unique_ptr<Coroutines> coroutines_;
};

}  // namespace ebb
