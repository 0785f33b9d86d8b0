// The table of the schedules that the planner has considered. A pure function.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// One line for each candidate of the planner. A star marks the chosen one.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
