// Everything that is decided about a training run before its first step.
//
//   Preparation prepared = prepare(model, options, {.device_memory = 256 << 20});
//
// prepare() is pure: it runs the model on the simulated device, lays out the parameters, and plans
// training and evaluation. It takes no memory of the run. PlanError says what would fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/model.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/search/options.h"

namespace ebb {

/// A way to lay a step out in time, and what it would take: a row of the planner's table.
struct Candidate {
  MicroBatchOrder order = MicroBatchOrder::Horizontal;
  Recompute recompute = Recompute::None;
  ActivationPlacement activations = ActivationPlacement::Device;
  UpdateOrder update = UpdateOrder::Overlap;
  // Tried for those near the fastest alone.
  uint32_t recomputed_layers = 0;  ///< where blocks are recomputed: how many of the model's
  uint32_t recomputed_of = 0;      ///< of each so many in a row; 0: of all, and then the first
  uint32_t resident_chunks = 0;    ///< chunks of weights
  uint32_t device_updates = 0;     ///< chunks; of those held
  uint32_t speculated_chunks = 0;  ///< chunks
  std::string why_not = {};  ///< empty: it fits the budgets. Otherwise what follows is not known
  double seconds = 0;        ///< predicted, of a step; 0 on a machine without rates
  Bound bound = {};
  double flops = 0;
  size_t moved_bytes = 0;
  size_t device_bytes = 0;  ///< that it would use, and so the next
  size_t host_bytes = 0;
  size_t smallest_device_bytes = 0;  ///< the smallest device budget in which it fits; always known
};

/// Everything decided before step 0.
struct Preparation {
  TrainerOptions options;             ///< nothing in them is `Auto`, or `Sqrt`, any more
  std::vector<Candidate> candidates;  ///< what was `Auto` in all its values, the simpler first
  size_t chosen = 0;                  ///< of them
  std::shared_ptr<const Layout> layout;
  Trace trace, evaluation_trace;
  std::shared_ptr<const ChunkTrace> chunk_trace;  ///< of the trace; none once a plan was taken
  Plan plan, evaluation_plan;
  Plan initialise_plan;  ///< blocks for what lives on the device, before the first step
  Plan flush_plan;       ///< what a step leaves to the next, should none follow at once
  Plan warm_up_plan;     ///< what a step expects of the one before, should there be none
  Ledger ledger;         ///< every byte, by class and tier
  uint32_t num_blocks = 0;
  size_t block_memory_bytes = 0;  ///< of the budget: for blocks, and for state that lives there
  uint32_t smallest_blocks = 0;
  uint32_t full_blocks = 0;
  size_t smallest_device_bytes = 0;  ///< the smallest device budget that works, for any candidate
  size_t full_device_bytes = 0;      ///< beyond which only chunks that live there take more
  int num_threads = 1;               ///< of the device's kernels: the device may have no more
  DeviceKind device = DeviceKind::Host;            ///< whose kernels' workspace was counted
  std::optional<AttentionKernels> attention = {};  ///< counted, too
  size_t pinned_memory = SIZE_MAX;                 ///< of the budgets
  double flops = 0;                                ///< of a step, recomputation included
  uint32_t num_layers = 0;                         ///< that the model's forward is made of
};

/// `machine` is what the choice goes by; without rates, bytes moved and arithmetic decide.
Preparation prepare(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                    const Machine& machine = {});

}  // namespace ebb
