// Hooks: what running model code tells the scheduler, and what it gets back.
//
// A moment is a module's forward or backward. begin_call announces which parameters it uses;
// until end_call the weights and gradient sums it named may be used on the compute stream. The
// same hooks serve the dry run (they write the trace) and the executor (they make the stream wait
// for leases); they need no tape: any code that submits to the compute stream may call them. Called
// by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "chunk/layout.h"
#include "device/kernels.h"
#include "device/tensor.h"

namespace ebb {

enum class Phase : uint8_t { Forward, Backward, Evaluate };
std::string_view name_of(Phase phase);

struct ParameterUse {
  ParameterId parameter = 0;
  uint32_t use = 0;    ///< which call of this parameter in one forward: tied weights have several
  bool weight = true;  ///< the weight is read
  bool gradient = false;  ///< the gradient sum of this use is written
  /// Which part of the parameter. The parts in which gradients of a use are written must be the
  /// same in all micro-batches, apart from one another, and together the whole.
  RowRange rows = {};
  Write write = Write::Store;  ///< in a trace: whether the gradient is the step's first of its rows
};

/// fp32 sums of one use of a parameter (of the rows it names), and whether this contribution is the
/// step's first.
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
  /// The rows that a use of the open moment names, and their gradient sums.
  virtual Tensor weight(const ParameterUse& use) = 0;
  virtual GradientTarget gradient(const ParameterUse& use) = 0;
  virtual void end_call() = 0;
};

}  // namespace ebb
