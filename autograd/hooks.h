// Hooks: the tape calls them before and after each call, so that the scheduler knows what the call
// uses.
//
// A call is the forward or the backward of one primitive. begin_call() announces the parameters
// that the call uses. Until end_call(), their weights and gradient sums may be used on the compute
// stream. In the dry run the hooks write the trace; in a real run they make the compute stream wait
// for loads. They do not need a tape: any code that submits to the compute stream may call them.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "chunk/layout.h"
#include "device/kernel_arguments.h"
#include "device/tensor.h"

namespace ebb {

/// Evaluate is a forward without a backward.
enum class Phase : uint8_t { Forward, Backward, Evaluate };
std::string_view name_of(Phase phase);

struct ParameterUse {
  ParameterId parameter = 0;
  uint32_t use = 0;       ///< the number of this use of the parameter in the forward, from 0
  bool weight = true;     ///< the call reads the weight
  bool gradient = false;  ///< the call writes the gradient sum of this use
  /// The part of the parameter that the call uses. The parts in which the gradient of a use is
  /// written must be the same in all micro-batches, disjoint, and together the whole parameter.
  RowRange rows = {};
  Write write = Write::Store;  ///< in a trace: Store for the first gradient of these rows in a step
};

/// Where a call writes a gradient. The first contribution is stored, later ones are added.
struct GradientTarget {
  /// For a parameter: the fp32 sums of the rows that a use names. For an activation: its gradient,
  /// in the type of the activation.
  Tensor sums;
  Write write = Write::Store;
};

class Hooks {
 public:
  virtual ~Hooks() = default;
  /// Opens a call that uses these parameters. `name` has static storage. The phase of a call that
  /// is recomputed is Backward. In a real run this function may block until the copy thread has
  /// submitted the loads of the call, and it throws LogicError if the call is not the next one of
  /// the trace. REQUIRES: no other call is open.
  virtual void begin_call(std::string_view name, Phase phase,
                          std::span<const ParameterUse> uses) = 0;
  /// The weight rows that a use of the open call names. REQUIRES: use.weight.
  virtual Tensor weight(const ParameterUse& use) = 0;
  /// Where the open call stores or adds the gradient of the rows that a use names. REQUIRES:
  /// use.gradient, and the call asks once for each use.
  virtual GradientTarget gradient(const ParameterUse& use) = 0;
  virtual void end_call() = 0;
};

}  // namespace ebb
