// Device memory that does not come in blocks: inputs, the kernels' workspace, partial norms, the
// loss. Pure.
#pragma once

#include <cstddef>

#include "chunk/home.h"
#include "chunk/ledger.h"
#include "scheduler/trainer.h"

namespace ebb {

/// What a plan wants of home.
inline HomeOptions home_options(const Plan& plan) {
  return {.device_chunks = plan.device_updates,
          .num_gradient_slots = plan.num_gradient_slots,
          .sums = plan.sums_at_home,
          .activations = plan.activations_at_home};
}

struct FixedMemory {
  size_t micro_batch_bytes = 0;  ///< inputs of one micro-batch, each aligned as the arena aligns
  size_t input_bytes = 0;        ///< of a step or an evaluation, whichever is larger
  size_t workspace_bytes = 0;
  Ledger ledger;
};

FixedMemory fixed_memory(const Model& model, const TrainerOptions& options, const Layout& layout,
                         const Trace& trace, const Trace& evaluation);

}  // namespace ebb
