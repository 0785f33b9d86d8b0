// The table of the schedules that the planner has considered. A pure function.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// The chosen candidate, with a star, then those that fit, the fastest first, then those that do
/// not fit: at most five lines, equal ones once, and how many more there are.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
