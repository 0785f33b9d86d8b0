// A model declares its parameters and computes its forward, layer by layer. Ebb needs no more for
// the dry run, training and evaluation.
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

/// An input of one micro-batch. The caller passes its content, which is copied to the device before
/// the step.
struct InputSpec {
  std::string name;
  Shape shape;  ///< of one micro-batch
  DType dtype = DType::I32;
  /// The caller passes no content. The input is device memory that is zero at first, and that keeps
  /// what the model writes, such as a key-value cache. Training with such an input throws
  /// ConfigError.
  bool persistent = false;
};

class Model {
 public:
  virtual ~Model() = default;
  /// Valid as long as the model.
  virtual const Parameters& parameters() const = 0;
  virtual std::vector<InputSpec> inputs() const = 0;

  // `inputs` are those of one micro-batch, in the order of inputs().

  /// The value before layer 0. A model that does not override this function has at least one input,
  /// and the first input is the value. For values that all layers need, call Tape::share(); begin()
  /// must not return one of them.
  virtual Variable begin(Tape&, std::span<const Tensor> inputs) const {
    return {.value = inputs[0]};
  }
  virtual uint32_t num_layers() const { return 0; }
  /// Computes the value after layer i from x, the value before the layer. REQUIRES: the layer makes
  /// its result itself. Only layer i may use x and the values that layer i makes; only the next
  /// layer, or end() after the last layer, may use the result (Tape::layer()).
  virtual Variable layer(Tape&, std::span<const Tensor> /*inputs*/, uint32_t /*i*/,
                         Variable x) const {
    return x;
  }
  /// Adds the losses of the micro-batch to the tape: by a primitive such as cross_entropy(), or by
  /// Tape::add_losses().
  virtual void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const = 0;
};

}  // namespace ebb
