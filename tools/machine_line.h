// The rates of a machine as text. A pure function.
#pragma once

#include <optional>
#include <string>

#include "scheduler/plan/simulate.h"

namespace ebb {

/// The machine's rates in one line; with both ends where the optimistic rates differ.
std::string machine_line(const Machine& machine, const std::optional<Machine>& optimistic = {});

}  // namespace ebb
