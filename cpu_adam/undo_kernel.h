// The vectorised loops of undo.h; private to this folder. The calling thread must flush denormals.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "cpu_adam/undo_outliers.h"

namespace ebb {

/// Updates elements [0, n) of the planes, whose corrections begin at `log`, aligned to 64 bytes, up
/// to the first kUndoElements whose outliers may find no room: returns how many elements were
/// updated.
int64_t update_range_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                              uint8_t* log, OutlierWriter& outliers);

/// Takes the update with `c` of elements [0, n) back, and makes that with `instead`, if given.
void undo_range(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                const AdamWCoefficients* instead, const uint8_t* log, OutlierReader& outliers);

}  // namespace ebb
