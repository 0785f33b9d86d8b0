// Updates that can be taken back, exactly: a step of AdamW that writes a log on its way, its undo,
// and its undo with another step in its place, each in one pass.
//
// Inverting Adam in floating point, with the coefficients of the step and its gradient,
//   m^ = (m' - (1 - beta1) g) / beta1            v^ = (v' - (1 - beta2) g^2) / beta2
//   p^ = (p' + step_size * m' / denominator(v')) / (1 - decay_rate)
// misses the old values by a few units in the last place. The log (undo_log.h) has the difference
// in bits, so undo = inverse + correction. How good the inverse is decides only how many
// corrections fit: exactness asks that the same function sees the same bits. So gradient, planes,
// runs and team's instruction set must be those of the update; the log keeps the rest. All values
// come back, NaNs, zeros of either sign and denormals included, as bits.
//
// The state after update_with_log() has the bits that adamw_update() makes, that after
// redo_update() those of adamw_update() with `step` on the state before. Planes and runs as in
// adamw.h, and runs begin at multiples of kUndoElements. Nothing allocates; broken contracts are
// LogicErrors.
#pragma once

#include <cstdint>
#include <span>

#include "cpu_adam/adamw.h"
#include "cpu_adam/undo_log.h"
#include "system/thread_team.h"

namespace ebb {

/// True: updated, and the log is full. False: the log had no room for the corrections and outliers,
/// and state is as it was. REQUIRES: an empty log.
[[nodiscard]] bool update_with_log(ThreadTeam& team, const Planes& planes, int64_t n,
                                   std::span<const AdamWRange> runs, const AdamWStep& step,
                                   UndoLog& log);

/// Takes back the update that fills the log, which is empty then.
void undo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log);

/// The same, and makes `step` instead.
void redo_update(ThreadTeam& team, const Planes& planes, int64_t n,
                 std::span<const AdamWRange> runs, UndoLog& log, const AdamWStep& step);

}  // namespace ebb
