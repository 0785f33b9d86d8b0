#include "scheduler/plan/trace.h"

#include "device/errors.h"

namespace ebb {

Write Trace::write_of(const Call& call, const ParameterUse& use) const {
  for (const ParameterUse& known : uses_of(call)) {
    if (known.gradient && known.parameter == use.parameter && known.use == use.use &&
        known.rows == use.rows) {
      return known.write;
    }
  }
  throw LogicError("a call writes a gradient that its trace does not have");
}

std::vector<bool> trained_parameters(const Trace& trace, uint32_t num_parameters) {
  std::vector<bool> trained(num_parameters, false);
  for (const ParameterUse& use : trace.uses) {
    if (use.gradient) trained[use.parameter] = true;
  }
  return trained;
}

}  // namespace ebb
