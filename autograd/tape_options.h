// How a tape runs a micro-batch, and which results it stores. Plain values.
#pragma once

#include <cstdint>

#include "device/dropout.h"
#include "device/tensor.h"

namespace ebb {

/// Pinned memory into which an evaluation stores results. A null tensor: the result is not
/// requested.
struct TapeResults {
  Tensor losses = {};  ///< fp32, one for each row of the loss
  Tensor logits = {};  ///< (R, classes) of the logits' type: the logits of the loss's last R rows
  bool loss = true;    ///< false: only the last R rows are computed, and no loss
};

struct TapeOptions {
  bool training = true;    ///< false: an evaluation, which has no backward
  uint32_t recompute = 0;  ///< how many consecutive layers are recomputed together; 0: none
  /// Of every `recomputed_of` consecutive layers, the first `recomputed_layers` are recomputed; by
  /// default all layers. The first ones are chosen because their backward runs last, so their
  /// activations would be kept the longest.
  uint32_t recomputed_layers = UINT32_MAX;
  uint32_t recomputed_of = UINT32_MAX;
  bool mark_idle = false;    ///< activations are marked as idle between forward and backward
  Dropout dropout = {};      ///< the tape sets the sample and the site; used in training only
  uint32_t micro_batch = 0;  ///< its number in the step
  TapeResults results = {};  ///< for an evaluation
};

}  // namespace ebb
