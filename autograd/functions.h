// What a model and a primitive give to the tape: values, uses of parameters, and the functions of
// the forward and of the backward.
//
// The functions of a primitive capture Variables, and get the tensors with value(): a replayed call
// may store its outputs at other addresses. They submit work to stream() and return at once; the
// tensors are valid for this work. One thread calls them.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/hooks.h"
#include "device/device.h"
#include "device/inline_function.h"
#include "device/kernel_arguments.h"

namespace ebb {

struct AnyKernel;  // device/kernels.h

/// A value on the tape. Inputs have id -1 and no gradient.
struct Variable {
  int32_t id = -1;
  Tensor value;
  bool has_gradient() const { return id >= 0; }
};

/// A parameter that a primitive uses, and whether its backward reads the weight again. A primitive
/// of several calls may use some rows of a parameter in each: every call after the first says
/// `continues`.
struct WeightUse {
  ParameterId parameter;
  bool read_in_backward = true;
  RowRange rows = {};
  bool continues = false;
};

class Tape;

/// What the forward function of a primitive works with.
class Forward {
 public:
  Forward(Tape& tape, std::span<const ParameterUse> uses) : tape_(tape), uses_(uses) {}
  Stream& stream() const;
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel) const;
  /// The weight of the primitive's i-th WeightUse.
  Tensor weight(int i) const;
  /// Where an input or an output is now.
  Tensor value(const Variable& variable) const;
  /// Memory that is valid until the end of this call.
  Tensor scratch(Shape shape, DType type) const;

 private:
  Tape& tape_;
  std::span<const ParameterUse> uses_;
};

/// What the backward function of a primitive works with.
class Backward {
 public:
  Backward(Tape& tape, std::span<const ParameterUse> uses) : tape_(tape), uses_(uses) {}
  Stream& stream() const;
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel) const;
  /// As in Forward.
  Tensor weight(int i) const;
  Tensor value(const Variable& variable) const;
  Tensor scratch(Shape shape, DType type) const;
  /// Where to add the gradient of the i-th WeightUse.
  GradientTarget weight_gradient(int i) const;
  /// The gradient of an output. All its contributions are there.
  Tensor gradient(const Variable& output) const;
  /// As gradient(), but in memory that no other value shares, which the function may change in
  /// place before it calls accumulate_gradient().
  Tensor own_gradient(const Variable& output) const;
  /// Where to write the gradient of an input. REQUIRES: input.has_gradient().
  GradientTarget input_gradient(const Variable& input) const;
  /// Adds the gradient of the output to that of the input. The first contribution is not copied:
  /// both then share the memory.
  void accumulate_gradient(const Variable& input, const Variable& output) const;

 private:
  Tape& tape_;
  std::span<const ParameterUse> uses_;
};

using ForwardFunction = InlineFunction<void(const Forward&), 448>;
using BackwardFunction = InlineFunction<void(const Backward&), 448>;
using LayerFunction = InlineFunction<Variable(Tape&, Variable), 64>;
using StageFunction = InlineFunction<void(Tape&, uint32_t stage), 448>;

}  // namespace ebb
