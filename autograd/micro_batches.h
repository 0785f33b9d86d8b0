// Runs the micro-batches of a step through a model: one after the other, or layer by layer.
//
// Horizontal: each micro-batch passes the whole model forward and backward before the next begins;
// few activations, every weight moves for every micro-batch. Vertical: all micro-batches pass a
// block of the model before any enters the next, and back again; weights move once for the forward
// and once for the backward whatever their number, and the values between blocks wait for it.
// Gradients of one use of a parameter are added in the order of the micro-batches either way, so
// both give the same bits.
//
// A model is written for one micro-batch. In vertical order each runs on a stack of its own, and
// they hand on their turn (autograd/coroutines.h) where the tape says so: where a block begins or
// ends, and between its moments where all that it makes is kept.
//
// One caller at a time. Nothing allocates after the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/coroutines.h"
#include "autograd/model.h"
#include "autograd/tape.h"

namespace ebb {

struct MicroBatchRun {
  uint32_t count = 1;
  TapeOptions tape = {};
  std::span<const Tensor> inputs;  ///< of all micro-batches, one after the other
  Tensor loss_total;               ///< (1) fp64
  float loss_gradient_scale = 1;
};

class MicroBatches {
 public:
  /// Told before each turn which micro-batch it is.
  using OnMicroBatch = InlineFunction<void(uint32_t), 64>;

  /// `most` micro-batches at once; ConfigError for too many. All arguments must outlive this.
  MicroBatches(const Model& model, Device& device, Stream& compute, Hooks& hooks, Arena& arena,
               bool vertical, uint32_t most);
  ~MicroBatches();

  void run(
      const MicroBatchRun& run, OnMicroBatch on_micro_batch = [](uint32_t) {});
  /// Of the model, as the last run passed them.
  uint32_t num_layers() const { return tapes_[0]->num_layers(); }

 private:
  class Boundary;

  void begin(const MicroBatchRun& run, uint32_t k, Tape& tape, YieldPoint* yield_point) const;
  void forward(const MicroBatchRun& run, uint32_t k, Tape& tape) const;
  void run_horizontally(const MicroBatchRun& run, OnMicroBatch& on_micro_batch);
  void run_vertically(const MicroBatchRun& run, OnMicroBatch& on_micro_batch);

  const Model& model_;
  const bool vertical_;
  const size_t num_inputs_;
  std::vector<std::unique_ptr<Tape>> tapes_;  // one, or one for each micro-batch
  std::vector<std::unique_ptr<Boundary>> boundaries_;
  std::unique_ptr<Coroutines> coroutines_;
};

}  // namespace ebb
