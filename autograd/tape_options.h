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

inline constexpr uint32_t kAllLayers = UINT32_MAX;

/// Which layers are recomputed: their inner activations are freed after their forward and computed
/// again before their backward.
struct Recompute {
  /// So many consecutive layers are recomputed together; 0: no layer is recomputed. A larger number
  /// keeps fewer activations between layers, but more of them exist during the backward.
  uint32_t layers_at_once = 0;
  /// Only the first `first` layers of each group are recomputed. A group is `of` consecutive
  /// layers. If all layers are one group, the layers whose backward runs last are recomputed: their
  /// activations would be kept the longest. With smaller groups, the link has time to copy the
  /// activations of other layers while these are recomputed.
  uint32_t first = kAllLayers;
  uint32_t of = kAllLayers;  ///< > 0

  bool operator==(const Recompute&) const = default;
};

struct TapeOptions {
  bool training = true;  ///< false: an evaluation, which has no backward
  Recompute recompute = {};
  bool mark_idle = false;    ///< activations are marked as idle between forward and backward
  Dropout dropout = {};      ///< the tape sets the sample and the site; used in training only
  uint32_t micro_batch = 0;  ///< its number in the step
  TapeResults results = {};  ///< for an evaluation
};

}  // namespace ebb
