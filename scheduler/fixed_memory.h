// Device memory that does not come in blocks: inputs, the kernels' workspace, partial norms, the
// loss. Pure.
#pragma once

#include <cstddef>

#include "chunk/ledger.h"
#include "scheduler/trainer.h"

namespace ebb {

struct FixedMemory {
  size_t micro_batch_bytes = 0;  ///< inputs of one micro-batch, each aligned as the arena aligns
  size_t input_bytes = 0;        ///< of a step or an evaluation, whichever is larger
  size_t workspace_bytes = 0;
  Ledger ledger;
};

FixedMemory fixed_memory(const Model& model, const TrainerOptions& options, const Layout& layout,
                         const Trace& trace, const Trace& evaluation);

}  // namespace ebb
