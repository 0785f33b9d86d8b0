// How a tape runs a micro-batch, and which results it stores. Plain values.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/recompute.h"
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
  bool training = true;  ///< false: an evaluation, which has no backward
  /// What to recompute of each layer. Layers without an entry keep all values.
  std::span<const LayerRecompute> layers = {};
  uint32_t layers_at_once = 1;        ///< so many layers that run again as a whole are a group
  LayerObserver* observer = nullptr;  ///< gets what each layer does; with nothing recomputed
  bool mark_idle = false;    ///< activations are marked as idle between forward and backward
  Dropout dropout = {};      ///< the tape sets the sample and the site; used in training only
  uint32_t micro_batch = 0;  ///< its number in the step
  TapeResults results = {};  ///< for an evaluation
};

}  // namespace ebb
