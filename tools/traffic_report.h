// Where the bytes went that a step copies: by class, by reason and by layer, as text. Pure
// functions.
#pragma once

#include <string>

#include "scheduler/plan/traffic.h"
#include "scheduler/search/preparation.h"
#include "tools/step_names.h"

namespace ebb {

/// A row for each class and reason with copies, and the totals.
std::string traffic_table(const Traffic& traffic);
/// A row for each layer, and the totals.
std::string layer_table(const StepNames& names);

/// The same in three lines, for the end of a run:
///   loads   33.77 GiB a step: weights 12 GiB first use, 12 GiB evicted; activations 9 GiB evicted
///   stores  24.4 GiB a step: gradients 12 GiB update; activations 12.4 GiB evicted
///   layers  wte 300 MiB, h.0 to h.11 from 12 MiB to 14 MiB each
/// Empty if the step copies nothing.
std::string traffic_lines(const Preparation& prepared);

}  // namespace ebb
