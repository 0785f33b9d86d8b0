// Where the bytes went that a step copies: by class, by reason and by layer, as text. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "scheduler/plan/traffic.h"
#include "scheduler/search/preparation.h"
#include "tools/step_names.h"

namespace ebb {

/// A row for each class and reason with copies, and the totals.
std::string traffic_table(const Traffic& traffic);
/// At most two lines without ends, for the copies that there are:
///   loads: weights 21.25 MiB first use, 24.50 MiB evicted; ...
///   stores: gradients 21.25 MiB update; ...
std::vector<std::string> traffic_reasons(const Traffic& traffic);
/// A row for each layer, and the totals.
std::string layer_table(const StepNames& names);

/// The same in three lines, each with its end, for the end of a run:
///   loads 133.11 MiB a step: weights 21.25 MiB first use, 24.50 MiB evicted; ...
///   stores 108.61 MiB a step: gradients 21.25 MiB update; activations 71.50 MiB evicted; ...
///   layers wte 1.14 MiB, wpe 3.12 MiB, h.0 to h.5 from 29.57 MiB to 45.71 MiB each, ln_f 15 KiB
/// Empty if the step copies nothing.
std::string traffic_lines(const Preparation& prepared);

}  // namespace ebb
