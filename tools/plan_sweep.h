// Many plans in a table: how a step's time depends on the device budget, or on its tokens.
#pragma once

#include <functional>
#include <string>

#include "tools/plan_setup.h"

namespace ebb {

/// Hands every row to `print` as soon as it is planned: a table with a bar for tokens a second.
/// Throws PlanError where not even the roomiest plan fits.
void sweep_plans(const PlanRequest& request, const PlanContext& context,
                 const std::function<void(const std::string&)>& print);

}  // namespace ebb
