// A table of plans: the time of a step for device budgets or for numbers of tokens.
#pragma once

#include <functional>
#include <string>

#include "tools/plan_setup.h"

namespace ebb {

/// Passes each row to `print` as soon as it is planned: a table with a bar for tokens per second.
/// Throws PlanError if the plan without budgets does not fit.
void sweep_plans(const PlanRequest& request, const PlanContext& context,
                 const std::function<void(const std::string&)>& print);

}  // namespace ebb
