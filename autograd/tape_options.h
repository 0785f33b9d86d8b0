// How a tape runs a micro-batch, and which results it stores. Plain values.
#pragma once

#include <cstdint>

#include "device/dropout.h"
#include "device/tensor.h"

namespace ebb {

/// Host memory into which an evaluation stores results. A null tensor: the result is not requested.
struct TapeResults {
  Tensor losses = {};  ///< fp32, one for each row of the loss
  Tensor logits = {};  ///< (R, classes) of the logits' type: those of the last R rows of the loss
  bool loss = true;    ///< false: only the logits are requested, and other rows are not computed
};

struct TapeOptions {
  bool training = true;
  uint32_t recompute = 0;  ///< how many consecutive layers are recomputed together; 0: none
  /// Of every `recomputed_of` consecutive layers, the first `recomputed_layers` are recomputed: the
  /// activations of early layers would be kept the longest.
  uint32_t recomputed_layers = UINT32_MAX;
  uint32_t recomputed_of = UINT32_MAX;
  bool mark_idle = false;    ///< activations are marked as idle between forward and backward
  Dropout dropout = {};      ///< probability, key and step; used in training only
  uint32_t micro_batch = 0;  ///< its number in the step
  TapeResults results = {};  ///< for an evaluation
};

}  // namespace ebb
