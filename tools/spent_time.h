// Splits the time of a step into kernels, waiting by cause, and the program. Pure functions.
// spent_time() allocates nothing, so that a run can call it after every step.
#pragma once

#include <span>
#include <string>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// Seconds. Their sum is the time of the steps.
struct SpentTime {
  double compute_s = 0;  ///< kernels run, including device updates
  double load_s = 0;     ///< kernels wait for a load
  double store_s = 0;    ///< kernels or the end of the step wait for a store
  double update_s = 0;   ///< as store_s, for the optimizer on the host or the norm before it
  double rest_s = 0;     ///< the program submits kernels, or begins or ends the step

  double total_s() const { return compute_s + load_s + store_s + update_s + rest_s; }
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
