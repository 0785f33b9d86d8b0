// Everything that is decided about running a model forward only, before its first run.
//
// prepare_inference() is pure, like prepare() in scheduler/search/preparation.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/model.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "scheduler/plan/plan.h"
#include "scheduler/search/options.h"

namespace ebb {

struct InferenceOptions {
  DType dtype = DType::BF16;  ///< weights on the device and matrix inputs
  size_t chunk_bytes = size_t{64} << 20;
  uint64_t seed = 1;
  /// From the seed; otherwise they are zeros until somebody writes them.
  bool random_weights = true;
};

/// One shape of micro-batch, and what is wanted of it.
struct ForwardSpec {
  const Model* model = nullptr;  ///< all passes: with the same parameters
  bool loss = true;              ///< false: logits alone, of the last rows; others are not made
  int64_t num_losses = 0;        ///< rows of the loss, where each one's is wanted; 0: it is not
  int64_t logits_rows = 0;       ///< the last so many rows of logits are wanted
  int64_t num_classes = 0;       ///< where logits are wanted
};

/// Everything decided before the first run.
struct PreparedInference {
  struct PreparedForward {
    ForwardSpec forward;
    Trace trace = {};
    Plan plan = {};
    Plan warm_up_plan = {};  ///< what the plan expects, from an empty device
    Plan flush_plan = {};    ///< back to that
  };
  InferenceOptions options;
  std::vector<PreparedForward> forwards;
  std::shared_ptr<const Layout> layout;
  Ledger ledger;                ///< every byte, by class and tier
  std::vector<InputSpec> kept;  ///< by name, of all passes
  size_t input_bytes = 0;       ///< of a micro-batch, of the pass that has most
  size_t result_bytes = 0;      ///< losses and logits, of the pass that has most
  size_t workspace_bytes = 0;   ///< of kernels
  size_t arena_bytes = 0;
  uint32_t num_blocks = 0;
  uint32_t resident_chunks = 0;          ///< of the weights' chunks
  size_t smallest_device_bytes = 0;      ///< the smallest device budget that works
  size_t full_device_bytes = 0;          ///< beyond which more does not help
  int num_threads = 1;                   ///< of the device's kernels: the device may have no more
  DeviceKind device = DeviceKind::Host;  ///< whose kernels' workspace was counted
};

/// The models must outlive what is made of this.
PreparedInference prepare_inference(std::span<const ForwardSpec> forwards,
                                    const InferenceOptions& options, const Budgets& budgets);

}  // namespace ebb
