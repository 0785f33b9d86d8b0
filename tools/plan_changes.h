// What to change when a plan does not fit: every change is planned like the original, and those
// that fit are ordered by what a token then costs. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/plan_setup.h"

namespace ebb {

struct PlanChange {
  std::string text;              ///< "--micro-batch-size 2 --gradient-accumulation 8"
  double seconds = 0;            ///< a step, predicted
  double tokens_per_second = 0;  ///< 0 on a machine without rates
  size_t device_bytes = 0, host_bytes = 0;
};

/// REQUIRES: plan_step_of(options, ground) throws a PlanError. The cheapest first.
std::vector<PlanChange> changes_that_fit(const TrainOptions& options, const PlanContext& context);

}  // namespace ebb
