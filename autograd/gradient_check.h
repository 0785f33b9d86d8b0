// Compares the gradients of a model with differences of its loss: to test the backward of a
// primitive.
//
//   const GradientCheck check = check_gradients(model, inputs);
//   if (!check.passed()) std::puts(check.message().c_str());
//
// Each parameter gets its initial values plus a random number between -0.1 and 0.1, because zeros
// and ones hide mistakes. For some elements of each parameter, the loss is computed with the
// element moved by +-step and by +-step / 2. Richardson's formula (4 D(step / 2) - D(step)) / 3 of
// the two central differences D is what the gradient must be. The losses are added in fp64, but the
// forward computes in fp32. So the allowed error of an element has three parts: `tolerance` times
// what the differences give, the rounding error of the loss divided by `step`, and the error of the
// differences as they show it: |D(step / 2) - D(step)|, and the jump of the slope at a kink such as
// that of ReLU. The jumps of two kinks near an element may cancel. Then a right gradient may seem
// wrong, and is accepted with a smaller `step`.
//
// A primitive whose input has no gradient is checked only for its parameters, so put a linear layer
// before it. A check runs the forward four times for each element: take small shapes. REQUIRES: the
// model computes in fp32. Dropout is off. One thread. Nothing is kept.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "device/device.h"

namespace ebb {

struct GradientCheckOptions {
  double tolerance = 0.001;  ///< so that a gradient that is 1 % too large is found
  double step = 0x1p-6;
  int64_t elements_per_parameter = 32;  ///< at most; spread over the parameter
  uint64_t seed = 1;                    ///< of the weights and of the choice of elements
  DeviceOptions device = {};            ///< where the model runs; the host by default
};

/// One element of the gradient of a parameter.
struct GradientElement {
  std::string name;        ///< "layer.3.weight[7, 120]"
  double gradient = 0;     ///< what the backward computed
  double differences = 0;  ///< what the differences of the loss give
  double allowed = 0;      ///< the largest allowed difference between the two
};

struct GradientCheck {
  double tolerance = 0;
  int64_t num_elements = 0;  ///< that were compared
  int64_t num_wrong = 0;
  /// The element with the largest error relative to its allowed error. A NaN is worst.
  GradientElement worst = {};
  /// Parameters of which all compared elements have smaller gradients than the allowed error, so
  /// that a wrong sign would not be found. Other inputs or a larger `step` may help; the gradient
  /// may also be 0 by nature.
  std::vector<std::string> too_small = {};

  bool passed() const { return num_wrong == 0; }
  std::string message() const;
};

/// `inputs`: those of one micro-batch, in host memory. Throws ConfigError if they are not those of
/// Model::inputs(), if an option is out of range, or if the loss is not finite; and what the model
/// and the device throw.
GradientCheck check_gradients(const Model& model, std::span<const Tensor> inputs,
                              const GradientCheckOptions& options = {});

}  // namespace ebb
