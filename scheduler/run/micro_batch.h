// The inputs of one micro-batch. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "device/tensor.h"

namespace ebb {

/// Host memory for the inputs of one micro-batch, in the order of Model::inputs(); `num_targets`
/// counts the targets that are not ignored.
struct MicroBatch {
  std::vector<Tensor> inputs;
  uint64_t num_targets = 0;
};

}  // namespace ebb
