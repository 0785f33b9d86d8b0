// What would make a run faster: every change of one flag is planned like the run itself, on the
// same machine, and the best is named where it is worth it. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "tools/plan_setup.h"

namespace ebb {

struct PlanGain {
  std::string change;            ///< "--device-memory 96MiB"
  std::string price;             ///< what it changes beside the time; empty: nothing, not a bit
  double ratio = 1;              ///< of tokens a second, predicted: above 1
  double tokens_per_second = 0;  ///< predicted
};

/// Below this the prediction says nothing.
inline constexpr double kLeastGain = 1.03;

/// The change with the most tokens a second; nullopt where none is worth it, where the run itself
/// does not fit, or where the machine has no rates. Where several are as good (to 1 %), the one
/// with the smaller price comes first.
std::optional<PlanGain> best_gain(const TrainOptions& options, const PlanContext& context);

/// "--device-memory 96MiB: 1.21 x the tokens/s, as predicted"
std::string format_gain(const std::optional<PlanGain>& gain);

}  // namespace ebb
