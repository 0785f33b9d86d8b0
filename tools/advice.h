// Advice: which flags to change when a run does not fit into memory, or to make it faster. Each
// change is planned like the run itself, so the advice says what the planner predicts. The changes
// themselves are those of flag_changes.h, and other memory budgets.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "scheduler/run/inference.h"
#include "tools/flag_changes.h"
#include "tools/plan_setup.h"
#include "tools/train_setup.h"

namespace ebb {

/// A change after which the run fits, and what is predicted then.
struct PlannedChange {
  std::string text;                         ///< "--micro-batch-size 2 --gradient-accumulation 8"
  std::string price = {};                   ///< as in FlagChange
  double seconds = 0;                       ///< of a step; 0 for inference
  double tokens_per_second = 0;             ///< 0 for inference, and on a machine without rates
  size_t device_bytes = 0, host_bytes = 0;  ///< 0 for inference
};

/// For a training that does not fit: of each kind the first change after which it fits, ordered by
/// predicted tokens per second. REQUIRES: plan_step_of(options, context) throws a PlanError.
std::vector<PlannedChange> changes_that_fit(const TrainOptions& options,
                                            const PlanContext& context);
/// The first three changes as a table, or the sentence that there is none.
std::string format_changes(std::span<const PlannedChange> changes);

/// As plan_run() of train_setup.h, but a PlanError also lists the changes after which the run fits.
void plan_or_advise(const TrainOptions& options, TrainSetup& setup);

/// Plans an evaluation or a generation with other flags. Throws PlanError where it does not fit.
using PlanInference =
    std::function<PreparedInference(const RunFlags& flags, const Budgets& budgets)>;
/// For an evaluation or a generation that does not fit on this device.
std::vector<PlannedChange> inference_changes_that_fit(const RunFlags& requested,
                                                      const DeviceOptions& device,
                                                      const PlanInference& plan);

struct Gain {
  PlannedChange change;
  double ratio = 1;  ///< of predicted tokens per second, after the change and before it
};
/// A smaller ratio than this is within the error of predictions.
inline constexpr double kLeastGain = 1.03;

/// For a training that fits: the change with the most tokens per second. A change with a
/// higher price must be more than 1 % faster than one with a lower price. nullopt where no change
/// reaches kLeastGain, where the training does not fit, and where the machine has no rates.
std::optional<Gain> best_gain(const TrainOptions& options, const PlanContext& context);
/// "--device-memory 96MiB: 1.21 x the tokens/s, as predicted"
std::string format_gain(const std::optional<Gain>& gain);

}  // namespace ebb
