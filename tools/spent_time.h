// Splits the time of a step into kernels, waiting by cause, and the program. Pure functions. They
// allocate nothing, so that a run can call them after every step.
#pragma once

#include <span>
#include <string>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// Seconds. Their sum is the time of the steps.
struct SpentTime {
  double compute_s = 0;  ///< kernels, and the updates that the device makes
  double load_s = 0;     ///< nothing computed, and a load was what was missing; and so the next
  double store_s = 0;    ///< a store, also one that a block's next use waited for
  double update_s = 0;   ///< the optimizer on the host, or the norm before it
  double rest_s = 0;     ///< the program: submitting kernels, beginning and ending the step

  double total_s() const { return compute_s + load_s + store_s + update_s + rest_s; }
  SpentTime& operator+=(const SpentTime& other);
};

/// Of one step that took `step_s`, `kernels_s` of them in kernels: what its operations took beyond
/// that, the program was late with the next kernel. The last operation may end before the step
/// does: then stores are waited for, then updates. REQUIRES: times of all the plan's operations.
SpentTime spent_time(const Plan& plan, std::span<const OpTime> times, double step_s,
                     double kernels_s);

/// "compute 91.2 %, waiting for loads 4.1 %, stores 0.0 %, updates 2.7 %, rest 2.0 %"
std::string format_spent(const SpentTime& spent);

}  // namespace ebb
