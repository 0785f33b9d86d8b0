// Advice: which flags the user can change if a run does not fit into memory, or to make a run
// faster. Each change is planned like the run itself, so the advice says what the planner predicts.
// The changes are those of flag_changes.h, and other memory budgets. They have kinds:
// flag_changes() returns one list of alternatives for each kind. The memory budgets are one more
// kind.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/errors.h"
#include "scheduler/run/inference.h"
#include "tools/flag_changes.h"
#include "tools/plan_setup.h"
#include "tools/train_setup.h"

namespace ebb {

/// A change after which the run fits, and what the planner predicts for the changed run.
struct PlannedChange {
  std::string text;              ///< "--micro-batch-size 2 --gradient-accumulation 8"
  std::string price = {};        ///< what else changes; empty: results keep all bits
  double seconds = 0;            ///< of a step; 0 for inference, and on a machine without rates
  double tokens_per_second = 0;  ///< 0 for inference, and on a machine without rates
  size_t device_bytes = 0, host_bytes = 0;  ///< 0 for inference
  /// The time for a token, divided by that of the unchanged run on a machine with enough host
  /// memory; 0 if the unchanged run does not fit there, and for inference.
  double relative_time = 0;
};

/// plan_step_of(); nullopt if the training does not fit, or if its flags exclude each other.
std::optional<PlannedStep> try_step(const TrainOptions& options, const PlanContext& context);

/// What a training that does not fit needs. All advice for it is planned from here.
struct MemoryNeed {
  std::optional<size_t> least_host_bytes;    ///< with this device, if the planner named it
  std::optional<size_t> least_device_bytes;  ///< with unlimited host memory; nullopt: none works
  /// The plan on this device with unlimited host memory; nullopt if the device is too small.
  std::optional<PlannedStep> with_unlimited_host;
};
/// `error` is what plan_step_of(options, context) throws.
MemoryNeed need_of(const TrainOptions& options, const PlanContext& context, const PlanError& error);

/// For a training that does not fit. From each kind of change, takes the first change after which
/// the training fits. Returns these changes sorted by predicted tokens per second, the fastest
/// first.
std::vector<PlannedChange> changes_that_fit(const TrainOptions& options, const PlanContext& context,
                                            const MemoryNeed& need);
/// The first changes as a table, or a sentence that says that there is none.
std::string format_changes(std::span<const PlannedChange> changes, size_t most = 3);

/// The smallest host memory that works with the device memory of the options; nullopt if no host
/// memory works.
std::optional<size_t> least_host_bytes(TrainOptions options, const PlanContext& context);

/// As plan_run() of train_setup.h. If the run does not fit, the text of the PlanError also has the
/// table of format_changes().
void plan_or_advise(const TrainOptions& options, TrainSetup& setup);

/// Plans an evaluation or a generation with other flags. Throws PlanError where it does not fit.
using PlanInference =
    std::function<PreparedInference(const RunFlags& flags, const Budgets& budgets)>;
/// For an evaluation or a generation that does not fit on this device. From each kind of change,
/// returns the first change after which it fits, in the order of the kinds.
std::vector<PlannedChange> inference_changes_that_fit(const RunFlags& requested,
                                                      const DeviceOptions& device,
                                                      const PlanInference& plan);

/// A change that makes a training faster.
struct Gain {
  PlannedChange change;
  double ratio = 1;  ///< predicted tokens per second after the change, divided by those before it
};
/// A gain with a smaller ratio is not named: predictions are not exact enough.
inline constexpr double kLeastGain = 1.05;

/// For a training that fits, returns the change with the most predicted tokens per second. Changes
/// are tried in this order: changes of flags without a price, more device memory, changes of flags
/// with a price. A later change must be more than 1 % faster than the best earlier one. Returns
/// nullopt if no change reaches kLeastGain, if the training does not fit, or if the rates of the
/// machine are not known.
std::optional<Gain> best_gain(const TrainOptions& options, const PlanContext& context);
/// Does gains() plan changes? Each of them would take seconds for a longer plan.
bool searches_gains(const PlannedStep& planned);
/// For a plan that fits, returns the changes that reach kLeastGain, the fastest first. `planned` is
/// plan_step_of(options, context). Only plans changes if the bound leaves room for such a gain, and
/// if searches_gains().
std::vector<Gain> gains(const TrainOptions& options, const PlanContext& context,
                        const PlannedStep& planned);
/// "--device-memory 96MiB: 1.21 x the tokens/s, as predicted"
std::string format_gain(const std::optional<Gain>& gain);

}  // namespace ebb
