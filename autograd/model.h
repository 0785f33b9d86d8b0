// A model: its parameters and its forward. Everything else follows: the dry run, training,
// evaluation.
//
// forward() composes primitives and layers on the tape, and ends in a loss. It runs on the
// simulated device first, where no memory exists, so it must never read the content of a tensor. A
// model is const and has no state. One thread calls it at a time.
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
  /// One micro-batch, inputs in the order of inputs(). Adds its losses to the tape.
  virtual void forward(Tape& tape, std::span<const Tensor> inputs) const = 0;
};

}  // namespace ebb
