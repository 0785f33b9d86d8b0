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

}  // namespace ebb
