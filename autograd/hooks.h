// Hooks: what model code tells the scheduler before and after each call.
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

enum class Phase : uint8_t { Forward, Backward, Evaluate };
std::string_view name_of(Phase phase);

struct ParameterUse {
  ParameterId parameter = 0;
  uint32_t use = 0;       ///< number of this use in the forward; only tied weights have several
  bool weight = true;     ///< the call reads the weight
  bool gradient = false;  ///< the call writes the gradient sum of this use
  /// The part of the parameter that the call uses. The parts in which the gradient of a use is
  /// written must be the same in all micro-batches, disjoint, and together the whole parameter.
  RowRange rows = {};
  Write write = Write::Store;  ///< in a trace: Store for the first gradient of these rows in a step
};

/// Where a call writes a gradient: the fp32 sums of the rows that a use names. The first
/// contribution of a step is stored, later ones are added.
struct GradientTarget {
  Tensor sums;
  Write write = Write::Store;
};

class Hooks {
 public:
  virtual ~Hooks() = default;
  /// `name` has static storage. Recomputation is part of the backward phase.
  virtual void begin_call(std::string_view name, Phase phase,
                          std::span<const ParameterUse> uses) = 0;
  /// The weight rows that a use of the open call names, and the target of their gradient.
  virtual Tensor weight(const ParameterUse& use) = 0;
  virtual GradientTarget gradient(const ParameterUse& use) = 0;
  virtual void end_call() = 0;
};

}  // namespace ebb
