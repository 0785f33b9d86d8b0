// When the operations of a plan ran, and what compute waited for: of a measured step, or of a
// simulated one. Pure functions.
//
// An operation begins when the one before it on its lane and all that it waits for have ended (of
// an update, whose first bodies may have run before, what counts is what it held up by itself). One
// that only gives or takes a block takes no time, and does not wait for the copies before it: the
// mover, or the stream, waits for an operation in turn, the link copies in turn (simulate.h).
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

/// Did it only give or take a block? Then nothing ever says that it ended.
bool takes_no_time(const Op& op);

/// `end_s` says when an operation ended; it is asked of those that take time, in their order.
/// times: as many as the plan has operations.
void fill_times(const Plan& plan, const std::function<double(uint32_t op)>& end_s,
                std::span<OpTime> times);

/// Seconds in which operations of both lanes ran.
double overlap(const Plan& plan, std::span<const OpTime> times, StreamKind a, StreamKind b);

/// Compute idle before one of its operations.
struct Stall {
  uint32_t op = 0;  ///< that could not begin
  uint32_t cause =
      kNone;  ///< of those that it waited for, the last to end; none: the program itself
  double start_s = 0;
  double seconds = 0;
};
/// In order of time.
std::vector<Stall> compute_stalls(const Plan& plan, std::span<const OpTime> times);

}  // namespace ebb
