// The table of the schedules that the planner has considered. A pure function.
#pragma once

#include <string>

#include "scheduler/search/preparation.h"

namespace ebb {

/// A header, then at most five different lines: the chosen candidate, with a star, those that fit,
/// the fastest first, and those that do not fit. Then how many more different lines there are.
std::string candidate_table(const Preparation& prepared);

}  // namespace ebb
