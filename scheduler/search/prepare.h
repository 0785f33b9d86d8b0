// The parts of prepare(), for options without `Auto`: prepare_context() makes everything before the
// plan, plan_step() makes a plan, and complete() adds what belongs to the chosen plan. Pure
// functions. A context is a Preparation without a plan.
#pragma once

#include <string>
#include <string_view>

#include "scheduler/search/preparation.h"

namespace ebb {

/// Traces, the layout, the blocks that they need, and a ledger of the memory that does not depend
/// on a plan. `num_blocks` is the number of blocks in the budget; it is less than `smallest_blocks`
/// if the budget is too small. The context does not depend on options.update. Throws ConfigError if
/// the model cannot run with these options.
Preparation prepare_context(const Model& model, const TrainerOptions& options,
                            const Budgets& budgets);

/// The text of an error: a message with a table below it, without a newline at the end.
std::string with_table(std::string_view message, std::string_view table);

/// The text of the error for a plan with this ledger that needs more than `budget` bytes of host
/// memory; or, on the host backend, of device and host memory together.
std::string too_large_for_host(const Ledger& ledger, size_t budget);
std::string too_large_together(const Preparation& context, const Ledger& ledger, size_t budget);

/// Throws PlanError. REQUIRES: context.num_blocks < context.smallest_blocks.
[[noreturn]] void throw_too_large_for_device(const Preparation& context, size_t budget);

/// The largest number of chunks that the device can update within the budget.
uint32_t most_device_updates(const Preparation& context);

/// The plan of a step. `options` may differ from those of the context only in update,
/// deferred_share, gradient_buffers, speculated_chunks, resident_chunks and device_updates.
/// REQUIRES: context.num_blocks >= context.smallest_blocks.
Plan plan_step(const Preparation& context, const TrainerOptions& options);

/// The ledger of a run with this plan.
Ledger ledger_with(const Preparation& context, const Plan& plan);

/// Makes the context a whole Preparation: adds the plan, its ledger, its initialise, warm-up and
/// flush plans and the plan of the evaluation. Throws LogicError if a plan is not valid.
void complete(Preparation& context, Plan plan);

}  // namespace ebb
