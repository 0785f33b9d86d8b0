// A trace in terms of chunks: the items of the compute stream in order, with the chunks that each
// needs. Planner and validator begin with it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "scheduler/plan/trace.h"

namespace ebb {

using ItemIndex = Index<struct ItemTag>;  ///< in ChunkTrace::items
using NeedIndex = Index<struct NeedTag>;  ///< in ChunkTrace::needs

/// What an item does with a chunk.
enum class Touch : uint8_t {
  Read,    ///< weights
  Create,  ///< writes the first contribution; the old content does not matter
  Update,  ///< adds a later contribution, or reads the sums for the last time
};

struct ChunkUse {
  FlatIndex chunk;
  Touch touch = Touch::Read;
};

/// What happens to a chunk of the activation arena at an item.
enum class ArenaChunkEvent : uint8_t {
  Begin,   ///< it is allocated; the old content does not matter
  Idle,    ///< nothing touches it after this item until Needed
  Needed,  ///< it is used again
  End,
};
inline constexpr int kNumArenaChunkEvents = 4;

/// One of three: a call, the rounding of a parameter chunk, or its update on the device.
struct ChunkTraceItem {
  CallIndex call = kNone;
  ChunkIndex rounded_chunk = kNone;
  ChunkIndex updated_chunk = kNone;
  uint32_t first_use = 0, num_uses = 0;  ///< in ChunkTrace::uses; each chunk appears once
  uint32_t first_event[kNumArenaChunkEvents] = {};  ///< in ChunkTrace::events
  uint32_t num_events[kNumArenaChunkEvents] = {};

  bool is_round() const { return rounded_chunk != kNone; }
  bool is_update() const { return updated_chunk != kNone; }
};

/// An item that needs a chunk on the device: it uses the chunk, or the chunk begins or is needed.
struct Need {
  ItemIndex item;
  FlatIndex chunk;
};

struct ChunkTrace {
  std::vector<ChunkTraceItem> items;
  std::vector<ChunkUse> uses;
  std::vector<FlatIndex> events[kNumArenaChunkEvents];  ///< arena chunks
  uint32_t first_flat[kNumSpaces + 1] = {};
  std::vector<Need> needs;                ///< by item, then by chunk
  std::vector<uint32_t> first_need;       ///< [chunk] in needs_of_chunk; one more entry at the end
  std::vector<NeedIndex> needs_of_chunk;  ///< by chunk, ascending

  uint32_t num_flat() const { return first_flat[kNumSpaces]; }
  FlatIndex flat_index(ChunkId id) const {
    return FlatIndex(first_flat[static_cast<int>(id.space)] + id.index);
  }
  ChunkId chunk_id(FlatIndex flat_index) const;
  std::span<const ChunkUse> uses_of(const ChunkTraceItem& item) const {
    return std::span(uses).subspan(item.first_use, item.num_uses);
  }
  std::span<const FlatIndex> chunks_of(const ChunkTraceItem& item, ArenaChunkEvent event) const {
    const int e = static_cast<int>(event);
    return std::span(events[e]).subspan(item.first_event[e], item.num_events[e]);
  }
};

/// Without device updates. `with_gradients` false: an evaluation, in which nothing is rounded.
ChunkTrace make_chunk_trace(const Trace& trace, const Layout& layout, bool with_gradients);

/// The same with an update of each chunk that is stored on the device: after the item that rounds
/// its gradient, or at the end if it waits for the norm. REQUIRES: each of these chunks is rounded.
ChunkTrace with_updates(const ChunkTrace& plain, const Layout& layout,
                        std::span<const ChunkRecord> chunks);

/// The largest number of chunks that are between their first and their last item at a time.
uint32_t peak_of_chunks(const ChunkTrace& chunk_trace);

/// The number of chunks of the activation arena.
uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes);

}  // namespace ebb
