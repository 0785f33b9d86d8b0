// The mask of dropout on the device, for single elements.
#pragma once

#include "cuda/kernels/device_code.h"
#include "device/dropout.h"

namespace ebb::cuda {

/// Does element `index` of a group of four (device/dropout.h) become 0? Each thread computes all
/// four words and uses one, because the elements of a group rarely belong to one thread.
__device__ __forceinline__ bool is_dropped(const Dropout& d, uint32_t row, uint32_t part,
                                           uint32_t group, uint32_t index) {
  const auto words = dropout_words(d, row, part, group);
  const uint32_t low = index % 2 == 0 ? words[0] : words[1];
  const uint32_t high = index % 2 == 0 ? words[2] : words[3];
  return (index < 2 ? low : high) < d.threshold();
}

}  // namespace ebb::cuda
