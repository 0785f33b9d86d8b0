// Splits and joins arrays of master weights (device/split_master.h). All spans have the same length
// and do not overlap.
//
// Thread-safety: pure functions; callers may divide a range among threads in any way. Nothing
// allocates. Spans of different lengths throw LogicError.
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
