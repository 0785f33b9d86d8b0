// The planner that chooses: everything that TrainerOptions leave open (`Auto`), tried in all its
// values, and the one taken that a step is predicted to be fastest with.
//
// Every candidate is prepared as if it had been asked for: one dry run and layout for each order of
// micro-batches and recomputation, one plan for each way to update. Its plan is simulated on the
// machine (simulate.h): what a step takes once steps follow one another, since the updates that a
// step leaves over are the first operations of the next one's plan. The least predicted time wins;
// where two are equal (to rounding, and always on a machine without rates), fewer bytes moved, then
// less arithmetic, then the simpler, which comes first.
//
// Pure functions; deterministic.
#pragma once

#include <string>
#include <vector>

#include "scheduler/search/preparation.h"

namespace ebb {

/// The values that candidates try, each told: the simpler first. Without a device budget everything
/// is resident, and one micro-batch after the other needs the least memory: no other order and no
/// other placement is tried, nor is an order for a single micro-batch. UpdateOrder is left as it
/// is: see update_orders().
std::vector<TrainerOptions> settings_to_try(const TrainerOptions& options, const Budgets& budgets);
/// Of `Auto`: to speculate is an overlap's refinement, tried for those near the fastest.
std::vector<UpdateOrder> update_orders(const TrainerOptions& options);

/// Times nearer than this are the same sums in another order.
inline constexpr double kEqualSeconds = 1e-9;
/// Does `a` win against `b`, which came before it? A step that speculates must be worth it.
/// REQUIRES: both fit.
bool is_better(const Candidate& a, const Candidate& b);

/// The chosen preparation, complete. Throws PlanError where nothing fits: with the smallest budget
/// in which some candidate would.
Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine);

/// In a few words: what decided between the candidates.
std::string why_chosen(const Preparation& prepared);

}  // namespace ebb
