// AdamW updates that can be rolled back to the same bits: an update that writes a log, its undo,
// and its undo combined with another update. Each is one pass over the planes.
//
// The inverse of Adam computes the old values m^, v^ and p^ from the new moments m' and v', the new
// master p', the coefficients of the step and its scaled gradient g:
//   m^ = (m' - (1 - beta1) g) / beta1            v^ = (v' - (1 - beta2) g^2) / beta2
//   p^ = (p' + step_size * m' / denominator(v')) / (1 - decay_rate)
// In floating point it misses the old values by a few units in the last place. The log (undo_log.h)
// stores the difference of the bits, so undo = inverse + correction. A better inverse only makes
// more corrections fit. The undo is exact because the same function is applied to the same bits. So
// undo and redo need the planes, n, the ranges, the gradient and the instruction set of the update,
// all unchanged. The log stores the step. The team may have another number of threads. All values
// are restored as bits, including NaNs, zeros of either sign and denormals.
//
// update_with_log() results in the same bits as adamw_update(). redo_update() results in the same
// bits as adamw_update() with `step` on the old state. `planes` (device/planes.h) have n elements,
// and include the gradient. `runs` are ranges as for adamw_update(). Each range begins at a
// multiple of kUndoElements (device/update_sizes.h). Thread-safety as adamw.h. Nothing allocates.
// Broken contracts throw LogicError.
#pragma once

#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "system/thread_team.h"

namespace ebb {

/// Updates and fills the log; returns true. If the log is too small for the corrections and
/// outliers, restores the old state, leaves the log empty and returns false. REQUIRES:
/// !log.is_full().
[[nodiscard]] bool update_with_log(ThreadTeam& team, const Planes& planes, int64_t n,
                                   std::span<const AdamWRange> runs, const AdamWStep& step,
                                   UndoLog& log);

/// Rolls back the update in the log, and empties the log. REQUIRES: log.is_full().
void undo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log);

/// Rolls back the update in the log, updates with `step` instead, and empties the log. This second
/// update cannot be undone. REQUIRES: log.is_full().
void redo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log, const AdamWStep& step);

}  // namespace ebb
