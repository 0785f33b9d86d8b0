// When the operations of a plan ran, and what compute waited for: of a measured step, or of a
// simulated one. Pure functions.
//
// An operation begins when the operation before it on its stream, and all that it waits for, have
// ended. An operation that only allocates or drops takes no time and does not wait for the copies
// before it: the copy thread waits for one operation after the other, and the link copies in order
// (simulate.h).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "scheduler/plan/plan.h"

namespace ebb {

/// Seconds since the step began.
struct OpTime {
  double start_s = 0;
  double end_s = 0;
};

/// Does the operation only allocate or drop? Then no event is recorded for it.
bool takes_no_time(const Op& op);

/// Fills `times`. REQUIRES: it has one entry for each operation. `end_s` returns the seconds from
/// the begin of the step to the end of an operation; it is called in order for the operations that
/// take time.
void fill_times(const Plan& plan, const std::function<double(OpIndex)>& end_s,
                std::span<OpTime> times);

/// Seconds in which operations of both streams ran at the same time.
double overlap(const Plan& plan, std::span<const OpTime> times, StreamKind a, StreamKind b);

/// The compute stream was idle before one of its operations.
struct Stall {
  OpIndex op;             ///< the operation that had to wait
  OpIndex cause = kNone;  ///< the one of its waits that ended last; kNone: the program thread
  double start_s = 0;
  double seconds = 0;
};
/// All stalls, in order of time.
std::vector<Stall> compute_stalls(const Plan& plan, std::span<const OpTime> times);

}  // namespace ebb
