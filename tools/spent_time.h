// Splits the time of a step into kernels, waiting by cause, and the program. Pure functions.
// spent_time() allocates nothing, so that a run can call it after every step.
#pragma once

#include <span>
#include <string>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// Seconds. Their sum is the time of the steps.
struct SpentTime {
  /// Compute: kernels run, including device updates. Load: kernels wait for a load. Store, Update:
  /// kernels or the end of the step wait for a store, or for the optimizer on the host or the norm
  /// before it.
  StreamTimes streams = {};
  double rest_s = 0;  ///< the program submits kernels, or begins or ends the step

  double total_s() const;
  SpentTime& operator+=(const SpentTime& other);
};

/// Splits a step of `step_s`, in which kernels ran for `kernels_s`. If the operations of the
/// compute stream took longer than `kernels_s`, the difference counts as `rest_s`, because the
/// program was late with the next kernel. After the last of these operations, the step waits for
/// stores and then for updates. REQUIRES: `times` has one entry for each operation of the plan.
SpentTime spent_time(const Plan& plan, std::span<const OpTime> times, double step_s,
                     double kernels_s);

/// "compute 91.2 %, waiting for loads 4.1 %, stores 0.0 %, updates 2.7 %, rest 2.0 %"
std::string format_spent(const SpentTime& spent);

}  // namespace ebb
