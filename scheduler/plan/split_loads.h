// Split loads (Division::splits_loads): the ranks of a machine load weights together.
//
// Without them, each rank loads a chunk over its own link, so the host memory of a machine is read
// as often as it has ranks. In a split load, each rank of the machine copies its part of the chunk
// to a part slot on its device ("load part"). When all parts are there, each rank copies all of
// them to its block ("gather"), over the faster connections between the devices. Weights on the
// device of their owner are split in the same way: then no device sends a whole chunk to all
// others.
//
// All ranks of a machine have the same split loads in the same order. Before a rank gathers load i,
// it loads its part of load i + kPartsAhead. The part of a resident chunk that returns at the end
// of the step is loaded directly before its own gather, and no later part is loaded before it. A
// slot is used again when all ranks of the machine have gathered its part. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chunk/rank_place.h"

namespace ebb {

/// The part slots of a rank. Split load i uses slot i % kPartSlots.
inline constexpr uint32_t kPartSlots = 6;
/// Half of the slots: so messages about a load have the time of two or three other loads to arrive.
inline constexpr uint32_t kPartsAhead = kPartSlots / 2;

/// A range of bytes of a chunk.
struct BytePart {
  size_t first = 0;
  size_t count = 0;
};
/// The bytes that `rank` loads of a chunk that has `bytes` bytes in use. The parts of the ranks of
/// a machine follow each other in the order of the ranks; the last ones may be shorter, or empty.
BytePart part_of_load(size_t bytes, const RankPlace& place, uint32_t rank);
/// The largest part of `bytes` bytes; of the bytes of a whole chunk, the size of a part slot.
size_t part_slot_bytes(size_t bytes, const RankPlace& place);

}  // namespace ebb
