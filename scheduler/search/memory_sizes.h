// The bytes of a training run that do not come in blocks: what the ledger counts before the run,
// and what the run takes. Both use these functions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chunk/home.h"
#include "chunk/ledger.h"
#include "device/kernels.h"
#include "scheduler/search/preparation.h"

namespace ebb {

/// What a plan needs of host memory.
HomeOptions home_options(const Plan& plan);

/// Device memory for one sum of squares of each piece of the parameter space.
size_t partial_norm_bytes(const Layout& layout);

/// Device memory for the planes of `num_chunks` chunks that are updated there, without the weights,
/// which are in blocks.
size_t device_state_bytes(const Layout& layout, uint32_t num_chunks);
/// Elements and bytes of the pinned buffer through which the host reads and writes that state.
uint64_t bounce_buffer_elements(const Layout& layout);
size_t bounce_buffer_bytes(const Layout& layout);
/// Pairs of decay factor and learning rate factor that parameters updated on the device may have.
inline constexpr size_t kMaxFactors = 64;
/// Pinned memory for their coefficients: of updates before the norm, and of updates after it.
inline constexpr size_t kCoefficientBytes = 2 * kMaxFactors * sizeof(AdamWCoefficients);

/// Host memory for the undo log of one chunk: a byte of corrections for each element, and room for
/// one outlier in twelve elements.
size_t undo_log_bytes(const Layout& layout);

/// Device memory that is the same for every plan.
struct FixedMemory {
  size_t micro_batch_bytes = 0;  ///< inputs of one micro-batch, each aligned as the arena aligns
  size_t input_bytes = 0;        ///< of a step or of an evaluation, whichever is larger
  size_t workspace_bytes = 0;
  Ledger ledger;
};
FixedMemory fixed_memory(const Model& model, const TrainerOptions& options, const Layout& layout,
                         const Trace& trace, const Trace& evaluation);

}  // namespace ebb
