// The flags of `ebb plan` and the plan for them. A plan allocates only what a dry run allocates.
// The first plan on a machine also measures its rates.
//
// Errors: ConfigError (flags, model, machine), PlanError if nothing fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/run/trainer.h"
#include "tools/batches.h"
#include "tools/planned_machine.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

class CommandLine;

/// A budget that no plan reaches. Sums with it do not overflow.
inline constexpr size_t kUnlimitedBytes = SIZE_MAX / 2;

enum class Sweep : uint8_t { None, DeviceMemory, StepTokens, Ranks };

struct PlanRequest {
  TrainOptions options;  ///< of model, shape and memory
  std::string machine_name = "this";
  bool measure = false;       ///< measure this machine's rates again
  std::string write_machine;  ///< file for the rates of the machine; empty: none
  Sweep sweep = Sweep::None;
  bool json = false;
  std::string html;  ///< a report of the simulated step; empty: none
};

void add_plan_flags(CommandLine& line, PlanRequest& request);
void validate(const PlanRequest& request);

/// The machine of a plan. plan_step_of() uses the budgets of the flags, or else all memory of the
/// machine. If the host is the device and --device-memory is not given, the device budget is what
/// the model can use, as in training.
struct PlanContext {
  PlannedMachine machine = {};
  std::optional<size_t> total_memory_bytes = {};  ///< if the device's memory is host memory
  /// The kind, and the attention kernels without --attention; plan_step_of() sets the rest.
  DeviceProfile device = {};
  bool is_here = false;          ///< this machine: --device-memory cannot exceed its memory
  uint64_t num_eval_tokens = 0;  ///< of the evaluation data; 0: no evaluation
};
/// This machine with the device, without rates.
PlannedMachine this_machine(const DeviceOptions& device);
/// The machine that --machine names; "this": this machine with its measured rates.
PlannedMachine planned_machine(const PlanRequest& request);
/// The machine, with the device and the attention kernels of its plans. Throws ConfigError if
/// --device or --threads does not match another machine.
PlanContext plan_context(const PlanRequest& request, const PlannedMachine& machine);
/// The context of a training run, to plan the run with other flags.
PlanContext context_of(const TrainSetup& setup);

/// A step's model, shape and plan. With several ranks, budgets and `prepared` are those of rank 0,
/// `ranks` has an entry for each, and all else is of all ranks together.
struct PlannedStep {
  std::string model_name;
  uint64_t num_parameters = 0;
  BatchShape shape;
  double flops = 0;  ///< of the model in a step, without recomputation
  Budgets budgets;
  bool assumes_host_memory = false;  ///< that of another machine, as its file says
  Preparation prepared;
  std::vector<RankTotals> ranks = {};  ///< empty for one rank
  StepPrediction predicted = {};       ///< with the pessimistic rates of the machine
  double optimistic_s = 0;             ///< the time of this plan with the optimistic rates
  /// The time of one rank with its own best plan, for the same micro-batches; nullopt: it does not
  /// fit, or is not compared.
  std::optional<double> one_rank_s = {};

  const Candidate& chosen() const { return prepared.candidates[prepared.chosen]; }
  uint32_t num_ranks() const { return prepared.division.place.num_ranks; }
  double tokens_per_second() const {
    return static_cast<double>(shape.num_tokens()) / predicted.seconds;
  }
  uint32_t num_machines() const { return prepared.division.place.num_machines; }
  uint32_t machine_of(size_t rank) const {
    return prepared.division.place.machine_of(static_cast<uint32_t>(rank));
  }
  /// Of all ranks, in one tier.
  size_t bytes_of_all(Tier tier) const;
  /// Of all ranks of one machine, the one whose ranks take the most.
  size_t bytes_of_machine(Tier tier) const;
};
/// Whether the host memory is that of another machine, as its file says, because --host-memory is
/// not given.
bool assumes_host_memory(const TrainOptions& options, const PlanContext& context);
/// Chooses the plan for the pessimistic rates of the machine.
PlannedStep plan_step_of(const TrainOptions& options, const PlanContext& context);
/// Throws ConfigError, with the number that works, if the machines have too few devices for the
/// ranks, or the ranks cannot be divided among them, or nothing is known of their network.
void check_ranks(const TrainOptions& options, const PlanContext& context);

}  // namespace ebb
