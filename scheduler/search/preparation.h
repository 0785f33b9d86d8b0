// Everything that is decided about a training run before its first step.
//
//   Preparation prepared = prepare(model, options, {.device_memory = 256 << 20});
//
// prepare() is pure: it runs the model on the simulated device, lays out the parameters, and plans
// training and evaluation. It allocates no memory of the run. It throws ConfigError for settings
// that are not allowed, and PlanError for budgets that are too small, with the smallest that works.
// Sizes are bytes, times are seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/search/layer_summary.h"
#include "scheduler/search/options.h"

namespace ebb {

/// One schedule with the time and the memory that a step takes with it: a row of the planner's
/// table.
struct Candidate {
  /// The settings of the plan. If `why_not` is not empty, its numbers have no meaning. The planner
  /// searches numbers only for candidates whose time is near the shortest.
  Schedule schedule = {};
  std::string why_not = {};  ///< empty: it fits the budgets; if not, times and sizes are not set
  /// The predicted time of a step; 0 on a machine without rates. Of the chosen plan for one GPU, it
  /// is the time after with_kept_mappings() (scheduler/plan/kept_mappings.h).
  double seconds = 0;
  Bound bound = {};
  double flops = 0;  ///< of a step, with recomputation
  /// Of chunks, to and from the device; not of weights that come from the devices of their owners.
  size_t moved_bytes = 0;
  size_t device_bytes = 0;           ///< device memory in use
  size_t host_bytes = 0;             ///< host memory in use
  size_t smallest_device_bytes = 0;  ///< the smallest device budget that works; always set
};

/// The result of prepare().
struct Preparation {
  TrainerOptions options;                   ///< as requested
  Division division;                        ///< how a step is divided; place: the prepared rank
  RankShare share;                          ///< what it computes of a step
  IndexRange evaluation_batches;            ///< what it computes of an evaluation
  Schedule schedule;                        ///< what the plan does
  std::vector<Candidate> candidates;        ///< one per combination of values; simple ones first
  size_t chosen = 0;                        ///< index of the chosen candidate
  std::vector<LayerRecompute> layer_lists;  ///< what the tape recomputes of each layer
  std::vector<LayerSummary> layers;         ///< what each layer keeps, and what that costs
  std::shared_ptr<const Layout> layout;
  Trace trace, evaluation_trace;
  std::shared_ptr<const ChunkTrace> chunk_trace;  ///< of `trace`, during the search; then null
  /// With 0 options.evaluation_batches the plan and the trace of the evaluation are empty.
  Plan plan, evaluation_plan;
  Plan initialise_plan;  ///< runs once, before step 0
  Plan flush_plan;       ///< runs after a step if no other step follows at once
  Plan warm_up_plan;     ///< runs before a step that follows no other step
  Ledger ledger;         ///< every byte, by class and tier
  Ledger fixed_ledger;   ///< the part of it that does not depend on the plan
  uint32_t num_blocks = 0;
  size_t block_memory_bytes = 0;  ///< device memory for blocks and for the planes of device updates
  uint32_t smallest_blocks = 0;   ///< no plan works with fewer blocks
  uint32_t full_blocks = 0;       ///< with so many blocks no chunk is evicted before its last use
  size_t smallest_device_bytes = 0;  ///< the smallest device budget with which a candidate works
  size_t full_device_bytes = 0;      ///< beyond it, only device updates use more memory
  DeviceProfile device = {};  ///< whose workspace was counted; a run may have no more threads
  double flops = 0;           ///< of a step, with recomputation
  uint32_t num_layers = 0;    ///< layers of the model
};

/// The planner predicts times with the rates of `machine`. Without rates it chooses the candidate
/// that moves the fewest bytes, and of equal ones the one with the fewest flops. The result does
/// not refer to the model or the machine.
///
/// Each rank prepares its own part, the one of Budgets::place. `machine` is that of all ranks; they
/// have equal parts of its threads and of its host memory. REQUIRES: all other arguments are the
/// same on all ranks. Then all ranks choose the same schedule, and their plans fit together. The
/// times of candidates assume that a rank never waits for another one; predict_step() does not.
Preparation prepare(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                    const Machine& machine = {});

/// The preparations of other ranks, in their order, for the preparation of one rank. `model` and
/// `budgets` are those with which it was made. If all ranks are simulated together (eight or fewer
/// are, and more if their plans are short), they are those of all other ranks. Otherwise they are
/// those of the ranks that stand for all (simulate_ranks), and of one rank for each other share of
/// a step.
std::vector<Preparation> prepare_others(const Preparation& prepared, const Model& model,
                                        const Budgets& budgets);

/// The step of all ranks together.
struct StepPrediction {
  double seconds = 0;  ///< 0 on a machine without rates
  Bound bound = {};
  uint32_t num_simulated = 1;  ///< ranks; if not all, they stand for all (simulate_ranks)
};
/// `others` is the result of prepare_others(), and empty for one rank.
StepPrediction predict_step(const Preparation& prepared, std::span<const Preparation> others,
                            const Machine& machine);

/// What a rank takes and moves.
struct RankTotals {
  uint32_t num_micro_batches = 0;
  size_t loaded_bytes = 0, stored_bytes = 0, fetched_bytes = 0;  ///< in a step
  Ledger ledger = {};
};
/// Of all ranks, in their order. `others` is the result of prepare_others(). A rank that is not
/// prepared has the plan of a prepared one with an equal share, but for the chunks that it owns,
/// which are counted. So its numbers are exact, too.
std::vector<RankTotals> totals_of_ranks(const Preparation& prepared,
                                        std::span<const Preparation> others);

}  // namespace ebb
