#include "autograd/functions.h"

#include "autograd/tape.h"
#include "device/errors.h"
#include "device/kernels.h"

namespace ebb {

Stream& OpenCall::stream() const { return tape_.compute_; }
void OpenCall::submit(const AnyKernel& kernel) const { tape_.submit(kernel); }
void OpenCall::submit_own(const OwnKernel& kernel) const { tape_.submit(AnyKernel(kernel)); }

Tensor OpenCall::weight(int i) const {
  EBB_CHECK(uses_[i].weight,
            "the call does not read this weight: WeightUse::read_in_backward is false");
  return tape_.hooks_.weight(uses_[i]);
}

Tensor OpenCall::value(const Variable& variable) const { return tape_.value(variable); }
Tensor OpenCall::scratch(Shape shape, DType type) const { return tape_.scratch(shape, type); }

GradientTarget Backward::weight_gradient(int i) const { return tape_.hooks_.gradient(uses_[i]); }

Tensor Backward::gradient(const Variable& output) const {
  const Tape::Value& value = tape_.values_[output.id];
  EBB_CHECK(value.gradient >= 0, "an output has no gradient");
  return tape_.tensor_at(tape_.gradients_[value.gradient].offset, value.shape, value.dtype);
}

GradientTarget Backward::input_gradient(const Variable& input) const {
  return tape_.input_gradient(input);
}

Tensor Backward::own_gradient(const Variable& output) const {
  return tape_.input_gradient(output).sums;
}

void Backward::accumulate_gradient(const Variable& input, const Variable& output) const {
  if (!input.has_gradient()) return;
  Tape::Value& to = tape_.values_[input.id];
  tape_.check_usable(to);
  if (to.gradient < 0) {
    to.gradient = tape_.values_[output.id].gradient;
    ++tape_.gradients_[to.gradient].num_owners;
    return;
  }
  const Tensor sum = tape_.input_gradient(input).sums;
  submit(Accumulate{sum, gradient(output).reshape(sum.shape)});
}

}  // namespace ebb
