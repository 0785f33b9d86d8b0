// What each layer of a model keeps for its backward, and how long its recomputation takes. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "autograd/recompute.h"
#include "scheduler/plan/simulate.h"

namespace ebb {

/// Of one layer, in each micro-batch.
struct LayerSummary {
  ValueGroups recomputed = kKeepAll;
  /// Activations that exist from the end of the layer's forward until its backward. The result of
  /// the layer is one of them.
  size_t kept_bytes = 0;
  double recompute_s = 0;  ///< the predicted time of the calls that run again
};

/// One for each layer. `lists` are those of recompute_lists() for these layers.
std::vector<LayerSummary> summarize_layers(const Recompute& recompute,
                                           std::span<const LayerRecompute> lists,
                                           std::span<const ObservedLayer> layers,
                                           const Machine& machine);

}  // namespace ebb
