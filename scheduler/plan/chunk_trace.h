// A trace cut along a layout: the compute lane's items in order, with the chunks each needs. The
// planner's input and the validator's; pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/trace.h"

namespace ebb {

/// What an item does with a chunk.
enum class Touch : uint8_t {
  Read,    ///< weights
  Create,  ///< first contribution: what was there does not matter
  Update,  ///< a later contribution, or the last read of sums
};

struct ChunkUse {
  uint32_t chunk = 0;  ///< dense number: ChunkTrace::dense()
  Touch touch = Touch::Read;
};

/// What happens to a chunk of the activation arena at an item.
enum class ArenaChunkEvent : uint8_t {
  Begin,   ///< its life begins: what was there does not matter
  Idle,    ///< nothing touches it behind this item until it wakes
  Needed,  ///< it is needed again
  End,
};
inline constexpr int kNumArenaChunkEvents = 4;

/// Run of a moment, Finish of a parameter chunk, or its update on the device: one of the three.
struct ChunkTraceItem {
  uint32_t call = UINT32_MAX;
  uint32_t rounded_chunk = UINT32_MAX;
  uint32_t updated_chunk = UINT32_MAX;
  uint32_t first_use = 0, num_uses = 0;             ///< in ChunkTrace::uses; no chunk twice
  uint32_t first_event[kNumArenaChunkEvents] = {};  ///< in ChunkTrace::events
  uint32_t num_events[kNumArenaChunkEvents] = {};

  bool is_round() const { return rounded_chunk != UINT32_MAX; }
  bool is_update() const { return updated_chunk != UINT32_MAX; }
};

/// Parameter chunks whose state lives on the device, and is updated there: as soon as they are
/// finished, or behind everything else.
struct DeviceUpdates {
  std::vector<uint32_t> chunks = {};
  bool at_end = false;
};

/// An item that needs a chunk: uses it, or has it begin or wake.
struct Need {
  uint32_t item = 0, chunk = 0;
};

struct ChunkTrace {
  std::vector<ChunkTraceItem> items;
  std::vector<ChunkUse> uses;
  std::vector<uint32_t> events[kNumArenaChunkEvents];  ///< dense numbers of activation chunks
  uint32_t first_flat[kNumSpaces + 1] = {};
  std::vector<Need> needs;               ///< by item, and of one item by chunk
  std::vector<uint32_t> first_need;      ///< [chunk] in needs_of_chunk, and one past the last
  std::vector<uint32_t> needs_of_chunk;  ///< in needs, ascending

  uint32_t num_flat() const { return first_flat[kNumSpaces]; }
  uint32_t flat_index(ChunkId id) const {
    return first_flat[static_cast<int>(id.space)] + id.index;
  }
  ChunkId chunk_id(uint32_t flat_index) const;
  std::span<const ChunkUse> uses_of(const ChunkTraceItem& item) const {
    return std::span(uses).subspan(item.first_use, item.num_uses);
  }
  std::span<const uint32_t> chunks_of(const ChunkTraceItem& item, ArenaChunkEvent event) const {
    const int e = static_cast<int>(event);
    return std::span(events[e]).subspan(item.first_event[e], item.num_events[e]);
  }
};

/// `with_gradients` false: evaluation, nothing is finished. Nothing is updated on the device.
ChunkTrace make_chunk_trace(const Trace& trace, const Layout& layout, bool with_gradients);

/// The same with updates on the device. REQUIRES: each of their chunks is finished.
ChunkTrace with_updates(const ChunkTrace& plain, const Layout& layout,
                        const DeviceUpdates& updates);

/// The most chunks at once between their first and their last item.
uint32_t peak_of_chunks(const ChunkTrace& chunk_trace);

/// Chunks of the activation arena.
uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes);

}  // namespace ebb
