// The intervals of a step in which chunks are on the device. Pure functions.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"

namespace ebb {

/// A chunk on the device, from the assignment of its block until the block is reassigned, the chunk
/// is dropped, or the step ends.
struct Stay {
  ChunkId chunk = {};
  BlockIndex block = kNone;
  double start_s = 0;
  double loaded_s = 0;  ///< end of the load
  double end_s = 0;
};
/// In order of the operations that end them. times: one for each operation of the plan.
std::vector<Stay> stays(const Plan& plan, std::span<const OpTime> times);

/// Bytes of blocks by space, valid from `time_s` on.
struct BytesOnDevice {
  double time_s = 0;
  std::array<size_t, kNumSpaces> bytes = {};
};
/// In order of time; the first is at 0.
std::vector<BytesOnDevice> bytes_on_device(std::span<const Stay> stays, size_t chunk_bytes);

}  // namespace ebb
