// What the header of a state file (io/state_file.h) says about a trainer. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/state_file.h"
#include "scheduler/run/state_reader.h"

namespace ebb {

// Names of numbers in the header.
inline constexpr const char* kNumUpdates = "num_updates";
inline constexpr const char* kNumSkipped = "num_skipped";
inline constexpr const char* kNumSkippedInARow = "num_skipped_in_a_row";
inline constexpr const char* kLossScale = "loss_scale";  // this and the next: only for fp16
inline constexpr const char* kNumGoodSteps = "num_good_steps";

/// `numbers`: further ones of the caller.
StateFileHeader state_header(const Layout& layout, const OptimizerCounters& counters,
                             const std::map<std::string, uint64_t>& numbers = {});
/// [parameter] its index in StateFileHeader::parameters.
std::vector<size_t> state_positions(const Layout& layout);

}  // namespace ebb
