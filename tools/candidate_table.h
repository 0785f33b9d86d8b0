// The table of the schedules that the planner has considered. A pure function.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// One line for each of the best candidates of the planner, the chosen one first, and how many more
/// there are. A star marks the chosen one.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
