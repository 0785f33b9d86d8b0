// What `ebb plan` was asked for, and the plan for it: nothing is allocated but what a dry run
// takes, and what measuring this machine does, once.
//
// Errors: ConfigError (flags, model, machine), PlanError where nothing fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/run/trainer.h"
#include "tools/batches.h"
#include "tools/planned_machine.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

/// A budget that no plan reaches, with room to add to.
inline constexpr size_t kUnlimitedBytes = SIZE_MAX / 2;

enum class Sweep : uint8_t { None, DeviceMemory, StepTokens };

struct PlanRequest {
  TrainOptions options;  ///< of a run: those of model, shape and memory count
  std::string machine_name = "this";
  std::string write_machine;  ///< a file for the machine's numbers; empty: none
  Sweep sweep = Sweep::None;
  bool json = false;
  std::string html;  ///< a report of the simulated step; empty: none
};

void add_plan_flags(CommandLine& line, PlanRequest& request);
void validate(const PlanRequest& request);

/// What a plan is made for. Budgets are not in it: plan_step_of() takes those of the flags, else
/// all that the machine has; the host as a device takes what the model needs, as in training.
struct PlanContext {
  PlannedMachine machine = {};
  std::optional<size_t> total_memory_bytes = {};   ///< where the device's memory is the host's
  DeviceKind device = DeviceKind::Host;            ///< whose kernels will run
  std::optional<AttentionKernels> attention = {};  ///< where it is left open; none: any
  bool is_here = false;          ///< this machine: no flag gives it more memory than it has
  uint64_t num_eval_tokens = 0;  ///< of the data that the run evaluates on; 0: it does not
};
/// This machine with such a device; without rates.
PlannedMachine this_machine(const DeviceOptions& device);
/// What --machine names; this one with its rates as measured, for whatever model.
PlannedMachine planned_machine(const PlanRequest& request);
/// This machine's rates are fitted to the model.
PlanContext plan_context(const PlanRequest& request, const PlannedMachine& machine);
/// Where a run is planned again, or otherwise.
PlanContext context_of(const TrainSetup& setup);

/// A step's model, shape and plan.
struct PlannedStep {
  std::string model_name;
  uint64_t num_parameters = 0;
  BatchShape shape;
  double flops = 0;  ///< the model's own, of a step
  Budgets budgets;
  Preparation prepared;

  const Candidate& chosen() const { return prepared.candidates[prepared.chosen]; }
  double tokens_per_second() const {
    return static_cast<double>(shape.num_tokens()) / chosen().seconds;
  }
};
PlannedStep plan_step_of(const TrainOptions& options, const PlanContext& context);

}  // namespace ebb
