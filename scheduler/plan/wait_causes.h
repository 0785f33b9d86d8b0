// Why the compute stream waited: each wait is divided over the operations that caused it. Pure
// functions, which allocate nothing.
//
// Compute waits for the last of the operations that it needs. That operation is often late for a
// reason of its own: a load begins late because the optimizer has not updated its chunk yet. So
// the critical path is followed backwards. An operation began when the operation before it on its
// stream ended; or, if its stream was idle, when an operation ended that it waited for, on another
// stream. The wait is charged to the path, the part on the other stream first, because what comes
// later on the path would have been in time without it.
//
// The path goes back to the end of the wait before, when compute had caught up, or to a call that
// writes what the path copies, because compute itself had not come further. If a copy waited for a
// call that still used its block, the call is charged only for the time in which the link was idle.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

enum class WaitCause : uint8_t {
  Update,   ///< the optimizer on the host was busy, and so host memory
  Load,     ///< the link to the device was busy
  Store,    ///< the link to the host was busy
  Block,    ///< a call still used the block into which a chunk was to be loaded
  Norm,     ///< the norm was being added up
  Program,  ///< the program had not submitted the operation yet
  Ranks,    ///< another rank was late
  Fetch,    ///< the network was busy
};
inline constexpr int kNumWaitCauses = 8;

/// "updates", "loads": what compute waited for.
std::string_view name_of(WaitCause cause);
/// "host memory bandwidth": what was busy.
std::string_view resource_of(WaitCause cause);

/// A part of one wait.
struct WaitShare {
  OpIndex waiting = kNone;  ///< of the compute stream; kNone: the end of the step
  OpIndex direct = kNone;   ///< the operation that `waiting` waited for; kNone: the program
  WaitCause cause = WaitCause::Program;
  OpIndex by = kNone;  ///< the operation that took the time; kNone: the program
  double start_s = 0;  ///< when the wait begins
  double seconds = 0;
};
using AddShare = std::function<void(const WaitShare&)>;

/// Passes on the parts of all waits of the compute stream, in order of time; the parts of a wait
/// follow each other, and their sum is the wait. The last wait is that of the step for the end of
/// its last operation. REQUIRES: `times` has one entry for each operation of the plan.
void for_each_wait_share(const Plan& plan, std::span<const OpTime> times, const AddShare& add);

}  // namespace ebb
