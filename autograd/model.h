// A model: its parameters and its forward. Everything else follows: the dry run, training,
// evaluation.
//
// forward() composes primitives and blocks on the tape and ends in a loss. It is run on the
// simulated device first, where no memory exists: it must never read a tensor's content. Const and
// stateless: called by one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "autograd/parameters.h"
#include "autograd/tape.h"

namespace ebb {

/// An input of one micro-batch, given by the caller and uploaded before the step.
struct InputSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::I32;
  /// Nobody gives it: device memory that begins as zeros and keeps what the model writes there from
  /// run to run, such as a cache. For scheduler/run/inference.h alone.
  bool kept = false;
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
