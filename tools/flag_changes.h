// Changes of the flags of a run that advice.h tries. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/train_options.h"

namespace ebb {

/// The flags of a training, an evaluation or a generation.
struct RunFlags {
  TrainOptions options;
  uint64_t max_tokens = 0;  ///< of a generation
};

struct FlagChange {
  std::string text;   ///< "--micro-batch-size 2 --gradient-accumulation 8"
  std::string price;  ///< what else changes than memory and time; empty: results keep all bits
  RunFlags flags;
};

/// Changes of one kind, in steps of growing size. The first that reaches the goal is enough.
using Alternatives = std::vector<FlagChange>;

enum class Goal : uint8_t {
  FitHost,       ///< a training that needs too much host memory
  FitDevice,     ///< a training that needs too much device memory
  FitInference,  ///< an evaluation or a generation that needs too much memory
  Faster,        ///< a training that fits
  FasterPlan     ///< the same before it runs: what to try, for a user who decides about the run
};
inline constexpr int kNumGoals = 5;

/// The alternatives of each kind of change that can help with this goal, the smallest price first.
/// Changes of the memory budgets are not among them: they depend on the plan (advice.h).
std::vector<Alternatives> flag_changes(const RunFlags& requested, Goal goal, bool on_gpu);

}  // namespace ebb
