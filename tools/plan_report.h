// The texts that `ebb plan` prints. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/advice.h"
#include "tools/plan_setup.h"

namespace ebb {

/// A line for each of: model, machine, step, memory, time, traffic, plan.
std::vector<std::string> plan_lines(const PlanContext& context, const PlannedStep& step);
/// plan_lines(), the table of candidates and the memory of each class of bytes.
std::string format_plan(const PlanContext& context, const PlannedStep& step);
std::string plan_json(const PlanContext& context, const PlannedStep& step);

/// The reason why a plan does not fit, and the changes after which it fits.
std::string format_misfit(std::string_view why, std::span<const PlannedChange> changes);
std::string misfit_json(std::string_view why, std::span<const PlannedChange> changes);

/// The machine's rates in one line.
std::string machine_line(const Machine& machine);
/// One line for each candidate of the planner. A star marks the chosen one.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
