// The vectorised loops of undo.h; private to this folder. The calling thread must flush denormals.
#pragma once

#include <cstdint>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_escapes.h"
#include "cpu_adam/undo_log.h"

namespace ebb {

/// Where elements have their corrections: 4 bits for each state of an element.
struct Corrections {
  uint8_t* moments;
  uint8_t* masters;
  /// REQUIRES: `first` is a multiple of kUndoElements.
  Corrections from(int64_t first) const { return {moments + first, masters + first / 2}; }
};

/// Updates elements [0, n) of the planes, whose corrections begin at `log`, aligned to 64 and 32
/// bytes, up to the first kUndoElements whose escapes find no room: returns how many elements were
/// updated.
int64_t update_range_with_log(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                              const Corrections& log, EscapeWriter& escapes);

/// Takes the update with `c` of elements [0, n) back, and makes that with `instead`, if given.
void undo_range(const Planes& planes, int64_t n, const AdamWCoefficients& c,
                const AdamWCoefficients* instead, const Corrections& log, EscapeReader& escapes);

}  // namespace ebb
