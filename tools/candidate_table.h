// The table of the schedules that the planner has considered. A pure function.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// One line for each of at most five candidates: the chosen one, with a star, and the fastest
/// others that fit; then how many more there are. Equal lines are shown once.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
