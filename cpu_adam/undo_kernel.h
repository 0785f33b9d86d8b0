// The vectorised loops of undo.h; private to this folder. The calling thread must flush denormals.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "cpu_adam/undo_outliers.h"

namespace ebb {

/// Updates elements [0, n) of the planes and writes their corrections to `log`, which is aligned to
/// 64 bytes. Stops before the first kUndoElements elements whose outliers may not fit. Returns the
/// number of updated elements.
int64_t update_range_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                              uint8_t* log, OutlierWriter& outliers);

/// Rolls back the update of elements [0, n) with `c`. If `instead` is not null, then updates with
/// it.
void undo_range(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                const AdamWCoefficients* instead, const uint8_t* log, OutlierReader& outliers);

}  // namespace ebb
