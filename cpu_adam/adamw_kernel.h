// The vectorised inner loop of adamw.h; private to this folder.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"

namespace ebb {

/// Updates elements [0, n) on the calling thread, which must flush denormals.
/// REQUIRES: planes checked by the caller.
void adamw_update_range(const Planes& planes, int64_t n, const AdamWCoefficients& coefficients);

}  // namespace ebb
