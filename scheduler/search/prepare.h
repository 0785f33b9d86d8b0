// The parts of prepare(), for one schedule: prepare_context() makes everything before the plan,
// plan_step() makes a plan, and complete() adds what belongs to the chosen plan. Pure functions. A
// context is a Preparation without a plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/search/preparation.h"

namespace ebb {

/// The recomputation that a request means for this model.
Recompute resolve(const RecomputeRequest& request, const Model& model);

/// What the layers do in a step without recomputation.
std::vector<ObservedLayer> observe_layers(const Model& model, const TrainerOptions& options,
                                          const Budgets& budgets);

/// The device whose memory is counted, with its number of threads.
DeviceProfile counted_device(const Budgets& budgets);

/// Traces, the layout, the blocks that they need, and the ledgers of the memory that does not
/// depend on a plan. `num_blocks` is the number of blocks in the budget; it is less than
/// `smallest_blocks` if the budget is too small. `layers` are those of observe_layers(). Throws
/// ConfigError if the model cannot run with these options.
Preparation prepare_context(const Model& model, const TrainerOptions& options,
                            const Schedule& schedule, const Budgets& budgets,
                            std::span<const ObservedLayer> layers);

/// True if prepare_context() returns equal contexts for both schedules, apart from
/// Preparation::schedule. A context depends only on the micro-batch order, the recomputation, the
/// placement of activations, and whether the sums of groups are on the devices.
bool have_same_context(const Schedule& a, const Schedule& b);

/// The text of an error: a message with a table below it, without a newline at the end.
std::string with_table(std::string_view message, std::string_view table);

/// The text of the error for a plan with this ledger that needs more than `budget` bytes of host
/// memory; or, on the host backend, of device and host memory together.
std::string too_large_for_host(const Ledger& ledger, size_t budget);
std::string too_large_together(const Preparation& context, const Ledger& ledger, size_t budget);

/// Throws PlanError. REQUIRES: context.num_blocks < context.smallest_blocks.
[[noreturn]] void throw_too_large_for_device(const Preparation& context, size_t budget);

/// The largest Schedule::device_updates within the budget. 0 if the sums of groups are stored in
/// host memory, or if the bounce buffer cannot be pinned.
uint32_t most_device_updates(const Preparation& context);

/// The plan of a step with this schedule, which may differ from that of the context in settings on
/// which the context does not depend. REQUIRES: context.num_blocks >= context.smallest_blocks.
Plan plan_step(const Preparation& context, const Schedule& schedule);
/// `asked`, with the numbers of chunks of this plan, which may be smaller.
Schedule schedule_of(const Plan& plan, Schedule asked);

/// The ledger of a run with this plan.
Ledger ledger_with(const Preparation& context, const Plan& plan);

/// Makes the context a whole Preparation: adds the plan, its ledger, its initialise, warm-up and
/// flush plans and the plan of the evaluation. REQUIRES: context.schedule is the schedule of the
/// plan. Throws LogicError if a plan is not valid.
void complete(Preparation& context, Plan plan);

}  // namespace ebb
