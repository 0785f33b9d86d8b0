// What a model and a primitive give to the tape: values, uses of parameters, and the functions of
// the forward and of the backward.
//
// The two functions of a primitive capture Variables, and get the tensors with value(). They must
// not capture the tensors of outputs, because Tape::replay_call() may store an output elsewhere.
// They submit work to stream() and return at once; the tensors are valid for this work. One thread
// calls them. To use a freed value throws LogicError; to use one that is idle, or that will be
// recomputed, throws ConfigError. If a layer has ended, the use of its inner values is not always
// found. The index i of a use is not checked.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/hooks.h"
#include "device/inline_function.h"
#include "device/kernel_arguments.h"
#include "device/own_kernel.h"
#include "device/stream.h"

namespace ebb {

struct AnyKernel;  // device/kernels.h

/// A value on the tape. An input of the model has the id -1 and no gradient.
struct Variable {
  int32_t id = -1;  ///< the number of the value on its tape
  Tensor value;     ///< where it was stored first; Tape::replay_call() may store it elsewhere
  bool has_gradient() const { return id >= 0; }
};

/// A parameter that a call uses.
struct WeightUse {
  ParameterId parameter;
  bool read_in_backward = true;  ///< the backward reads the weight again
  RowRange rows = {};            ///< the rows that the call uses
  /// The call belongs to the same use as an earlier call: a primitive may have several calls, each
  /// for other rows of one parameter. False in the first of them, true in the others.
  bool continues = false;
};

class Tape;

/// What both functions of a primitive work with.
class OpenCall {
 public:
  OpenCall(Tape& tape, std::span<const ParameterUse> uses) : tape_(tape), uses_(uses) {}
  Stream& stream() const;
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel) const;
  /// Submits a kernel of your own to stream(). Throws ConfigError if it cannot run on this kind of
  /// device.
  template <IsOwnKernel Kernel>
  void submit(const Kernel& kernel) const {
    submit_own(OwnKernel(kernel));
  }
  /// The rows of the weight that the call's i-th WeightUse names. REQUIRES, in a backward:
  /// WeightUse::read_in_backward.
  Tensor weight(int i) const;
  /// The tensor of an input or an output, for this call.
  Tensor value(const Variable& variable) const;
  /// Memory for the work of this call. Its content is undefined.
  Tensor scratch(Shape shape, DType type) const;

 protected:
  Tape& tape_;
  std::span<const ParameterUse> uses_;

 private:
  void submit_own(const OwnKernel& kernel) const;
};

/// What the forward function of a primitive works with.
using Forward = OpenCall;

/// What the backward function of a primitive works with.
class Backward : public OpenCall {
 public:
  using OpenCall::OpenCall;
  /// Where to store or add the gradient of the i-th WeightUse. To be called once for each use.
  GradientTarget weight_gradient(int i) const;
  /// The complete gradient of an output, in the type of the output. Throws LogicError if the output
  /// has none: a call runs backward if at least one of its outputs has a gradient.
  Tensor gradient(const Variable& output) const;
  /// As gradient(), but in memory that no other value shares, which the function may change in
  /// place before it calls accumulate_gradient(). REQUIRES, not checked, also for
  /// accumulate_gradient(): the output has a gradient.
  Tensor own_gradient(const Variable& output) const;
  /// Where to store or add the gradient of an input. REQUIRES: input.has_gradient().
  GradientTarget input_gradient(const Variable& input) const;
  /// Adds the gradient of the output to that of the input. Does nothing for an input of the model.
  /// The first contribution is not copied: both gradients then share the memory. REQUIRES, not
  /// checked: both have one type and one number of elements.
  void accumulate_gradient(const Variable& input, const Variable& output) const;
};

// Trivially copyable callables: they capture values and views (device/inline_function.h).
using ForwardFunction = InlineFunction<void(const Forward&), 448>;
using BackwardFunction = InlineFunction<void(const Backward&), 448>;
using LayerFunction = InlineFunction<Variable(Tape&, Variable), 64>;
using StageFunction = InlineFunction<void(uint32_t stage), 448>;

}  // namespace ebb
