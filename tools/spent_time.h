// Splits the time of a step into kernels, waiting by cause, and the program. Pure functions.
// spent_time() allocates nothing, so that a run can call it after every step.
#pragma once

#include <array>
#include <span>
#include <string>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/wait_causes.h"

namespace ebb {

/// Seconds. Their sum is the time of the steps.
struct SpentTime {
  double kernels_s = 0;  ///< kernels run, including device updates
  /// [cause] kernels, or the end of the step, wait (scheduler/plan/wait_causes.h). What waits for
  /// the program is in `rest_s`.
  std::array<double, kNumWaitCauses> waits = {};
  double rest_s = 0;  ///< the program submits kernels, or begins or ends the step

  double waited_s(WaitCause cause) const { return waits[static_cast<size_t>(cause)]; }

  double total_s() const;
  SpentTime& operator+=(const SpentTime& other);
};

/// Splits a step of `step_s`, in which kernels ran for `kernels_s`. If the operations of the
/// compute stream took longer than `kernels_s`, the difference counts as `rest_s`, because the
/// program was late with the next kernel. REQUIRES: `times` has one entry for each operation of the
/// plan.
SpentTime spent_time(const Plan& plan, std::span<const OpTime> times, double step_s,
                     double kernels_s);

/// "compute 91.2 %, waiting for updates 4.1 %, loads 0.0 %, stores 2.7 %, free blocks 0.0 %, the
/// norm 0.0 %, rest 2.0 %"
std::string format_spent(const SpentTime& spent);

}  // namespace ebb
