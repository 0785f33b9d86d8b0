// A model: its parameters, and its forward in layers. Everything else follows: the dry run,
// training, evaluation.
//
// begin(), layer() and end() compose primitives on the tape, for one micro-batch. Ebb owns the
// loops over layers and micro-batches (autograd/micro_batches.h):
//
//   x = begin(tape, inputs);
//   for (uint32_t i = 0; i < num_layers(); ++i) x = layer(tape, inputs, i, x);
//   end(tape, inputs, x);
//
// A layer is what is recomputed or kept as a whole, and what all micro-batches run in vertical
// order before any of them runs the next one. A model without layers overrides only end().
//
// The functions run on the simulated device first, where no memory exists, so they must never read
// the content of a tensor. layer() runs again where the layer is recomputed. A model is const and
// has no state. One thread calls it at a time.
#pragma once

#include <span>
#include <vector>

#include "autograd/parameters.h"
#include "autograd/tape.h"

namespace ebb {

/// An input of one micro-batch. The caller gives it, and it is copied to the device before the
/// step.
struct InputSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::I32;
  /// The caller does not give it: device memory that starts as zeros and keeps what the model
  /// writes there between runs, such as a key-value cache. Only inference has such inputs.
  bool persistent = false;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Parameters& parameters() const = 0;
  virtual std::vector<InputSpec> inputs() const = 0;

  // `inputs` are those of one micro-batch, in the order of inputs().

  /// The value before the first layer: the first input, if the model does not override this. Values
  /// that all layers need go to Tape::share().
  virtual Variable begin(Tape&, std::span<const Tensor> inputs) const {
    return {.value = inputs[0]};
  }
  virtual uint32_t num_layers() const { return 0; }
  /// The value after layer i, from the value x before it. No other layer may use x or the values
  /// that this layer makes, except for its result, which only the next layer or end() may use.
  virtual Variable layer(Tape&, std::span<const Tensor> /*inputs*/, uint32_t /*i*/,
                         Variable x) const {
    return x;
  }
  /// Adds the losses of the micro-batch to the tape.
  virtual void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const = 0;
};

}  // namespace ebb
