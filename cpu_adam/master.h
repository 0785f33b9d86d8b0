// Split master weights (device/split_master.h) over arrays, element by element: all spans have one
// length and do not overlap.
//
// Thread-safety: pure functions; callers cut ranges among threads as they like. Nothing allocates
// or throws, except LogicError for spans of different lengths.
#pragma once

#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/split_master.h"

namespace ebb {

void split_masters(std::span<const float> master, std::span<BF16> weight, std::span<int16_t> low);
void join_masters(std::span<const BF16> weight, std::span<const int16_t> low,
                  std::span<float> master);

}  // namespace ebb
