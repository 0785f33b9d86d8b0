// Which chunk is on the device when, over the time of a step. Pure functions.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// A chunk on the device: from when it was given a block until the block was given away, or the
/// chunk dropped, or the step ended.
struct Stay {
  ChunkId chunk = {};
  uint32_t block = kNone;
  double start_s = 0;
  double loaded_s = 0;  ///< when its content was there
  double end_s = 0;
};
/// In order of the operations that end them. times: of the plan's operations.
std::vector<Stay> stays(const Plan& plan, std::span<const OpTime> times);

/// Bytes of blocks by space, from a time on.
struct BytesOnDevice {
  double time_s = 0;
  std::array<size_t, kNumSpaces> bytes = {};
};
/// In order of time; the first is at 0.
std::vector<BytesOnDevice> bytes_on_device(std::span<const Stay> stays, size_t chunk_bytes);

}  // namespace ebb
