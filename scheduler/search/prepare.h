// The steps of a preparation, for settings in which nothing is Auto: first all that a dry run
// tells, then a plan, then the rest for the plan that is taken. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "scheduler/search/preparation.h"

namespace ebb {

/// Traces, layout, and what they need of the device; num_blocks is what the budget holds, fewer
/// than smallest_blocks where it is too small. The ledger has what does not depend on a plan.
/// Nothing but the plan depends on options.update.
Preparation prepare_context(const Model& model, const TrainerOptions& options,
                            const Budgets& budgets);

/// A message with a table below it: for errors, which end without a newline.
std::string with_table(std::string_view message, std::string_view table);

/// What is said of a plan with this ledger that home, or home and a host device together, cannot
/// hold.
std::string too_large_for_host(const Ledger& ledger, size_t budget);
std::string too_large_together(const Preparation& context, const Ledger& ledger, size_t budget);

/// REQUIRES: ground.num_blocks < ground.smallest_blocks.
[[noreturn]] void throw_too_large_for_device(const Preparation& context, size_t budget);

/// Chunks whose state the budget has room for on the device.
uint32_t most_device_updates(const Preparation& context);

/// `options`: the ground's, but for what only the plan depends on.
/// REQUIRES: ground.num_blocks >= ground.smallest_blocks.
Plan plan_step(const Preparation& context, const TrainerOptions& options);

/// Every byte, if the step follows this plan.
Ledger ledger_with(const Preparation& context, const Plan& plan);

/// Takes the plan, and adds and checks all that goes with it.
void complete(Preparation& context, Plan plan);

}  // namespace ebb
