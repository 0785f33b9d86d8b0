// Everything that is decided about an inference before its first run.
//
// An inference has one forward or several, each with a shape of micro-batch of its own, such as the
// prompt and the single token of a generation. prepare_inference() runs each forward on the
// simulated device, lays out the parameters, and plans each forward. It is pure, like prepare()
// (scheduler/search/preparation.h). Sizes are bytes.
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
  /// Initial weights: from the seed, or zeros.
  bool random_weights = true;
};

/// One forward: a model for one shape of micro-batch, and the results that it computes.
struct ForwardSpec {
  const Model* model = nullptr;  ///< all forwards have models with the same parameters
  bool loss = true;              ///< false: only the logits of the last rows are computed
  int64_t num_losses = 0;        ///< how many rows have their own loss as a result, all or none
  int64_t logits_rows = 0;       ///< the logits of this many last rows are a result
  int64_t num_classes = 0;       ///< of the logits; needed if logits_rows > 0
};

/// The result of prepare_inference().
struct PreparedInference {
  struct PreparedForward {
    ForwardSpec forward;
    Trace trace = {};
    Plan plan = {};
    Plan warm_up_plan = {};  ///< loads what the plan expects on an empty device
    Plan flush_plan = {};    ///< leaves the device empty again
  };
  InferenceOptions options;
  std::vector<PreparedForward> forwards;
  std::shared_ptr<const Layout> layout;
  Ledger ledger;                      ///< every byte, by class and tier
  std::vector<InputSpec> persistent;  ///< the persistent inputs of all forwards, by name
  size_t input_bytes = 0;             ///< inputs of a micro-batch, of the forward with the largest
  size_t result_bytes = 0;            ///< losses and logits, of the forward with the largest
  size_t workspace_bytes = 0;         ///< of kernels
  size_t arena_bytes = 0;             ///< of the forward with the largest arena
  uint32_t num_blocks = 0;
  uint32_t resident_chunks = 0;      ///< chunks of weights that stay on the device between runs
  size_t smallest_device_bytes = 0;  ///< the smallest device budget that works
  size_t full_device_bytes = 0;      ///< a larger device budget makes no run faster
  DeviceProfile device = {};  ///< whose workspace was counted; a run may have no more threads
};

/// Throws PlanError where a budget is too small, ConfigError as Layout, and LogicError if there is
/// no forward, or if forwards have different parameters, or persistent inputs of the same name that
/// have different types or shapes. The models must outlive all uses of the result.
PreparedInference prepare_inference(std::span<const ForwardSpec> forwards,
                                    const InferenceOptions& options, const Budgets& budgets);

}  // namespace ebb
