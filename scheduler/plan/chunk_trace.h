// A trace in terms of chunks: the items of the compute stream in order, with the chunks that each
// item needs. The planner and the validator of plans begin with it. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "scheduler/plan/groups.h"
#include "scheduler/plan/trace.h"

namespace ebb {

using ItemIndex = Index<struct ItemTag>;  ///< in ChunkTrace::items
using NeedIndex = Index<struct NeedTag>;  ///< in ChunkTrace::needs

/// What an item does with a chunk.
enum class Touch : uint8_t {
  /// Reads weights, or (a device update) a finished gradient.
  Read,
  /// Writes the first contribution to gradient sums, or a finished gradient. The old content does
  /// not matter. A device update has this touch on its weights, which are always on the device.
  Create,
  /// Adds a later contribution to gradient sums, or reads them for the last time.
  Update,
};

struct ChunkUse {
  FlatIndex chunk;
  Touch touch = Touch::Read;
};

/// What happens to a chunk of the activation arena at an item.
enum class ArenaChunkEvent : uint8_t {
  Begin,   ///< it is allocated; the old content does not matter
  Idle,    ///< no item uses it between this item and the item with its next Needed event
  Needed,  ///< it is used again
  End,     ///< no later item uses it
};
inline constexpr int kNumArenaChunkEvents = 4;

/// An item is a call, the rounding of a parameter chunk, or the device update of a parameter chunk.
/// The other two of the first three members are kNone. If the sums of groups are stored, the
/// rounding uses no chunks on the device: it says only that all sums are complete.
struct ChunkTraceItem {
  CallIndex call = kNone;
  ChunkIndex rounded_chunk = kNone;
  ChunkIndex updated_chunk = kNone;
  uint32_t first_use = 0, num_uses = 0;  ///< in ChunkTrace::uses; no chunk appears twice
  /// [event] in ChunkTrace::events
  uint32_t first_event[kNumArenaChunkEvents] = {};
  uint32_t num_events[kNumArenaChunkEvents] = {};

  uint32_t num(ArenaChunkEvent event) const { return num_events[static_cast<int>(event)]; }
  bool is_round() const { return rounded_chunk != kNone; }
  bool is_update() const { return updated_chunk != kNone; }
};

/// An item that needs a chunk on the device: the item uses the chunk, or the chunk has a Begin or
/// Needed event at the item.
struct Need {
  ItemIndex item;
  FlatIndex chunk;
};

struct ChunkTrace {
  std::vector<ChunkTraceItem> items;
  std::vector<ChunkUse> uses;
  std::vector<FlatIndex> events[kNumArenaChunkEvents];  ///< [event] arena chunks, by item
  /// [space] the flat index of the first chunk of the space; one more entry at the end
  uint32_t first_flat[kNumSpaces + 1] = {};
  /// The sums of groups are stored after their last use, then added and rounded; otherwise rounded
  /// gradients are stored.
  bool stores_groups = false;
  /// [parameter] does the step compute a gradient of it? Empty unless stores_groups.
  std::vector<bool> trained = {};
  std::vector<Need> needs;  ///< sorted by item, then by chunk
  /// [chunk] the index of its first entry in needs_of_chunk; one more entry at the end
  std::vector<uint32_t> first_need;
  std::vector<NeedIndex> needs_of_chunk;  ///< sorted by chunk, then by item

  uint32_t num_flat() const { return first_flat[kNumSpaces]; }
  uint32_t num_chunks(Space space) const {
    const int s = static_cast<int>(space);
    return first_flat[s + 1] - first_flat[s];
  }
  FlatIndex flat_index(ChunkId id) const {
    return FlatIndex(first_flat[static_cast<int>(id.space)] + id.index);
  }
  ChunkId chunk_id(FlatIndex flat_index) const;
  /// Does an item need this chunk on the device?
  bool is_needed(ChunkId id) const {
    const FlatIndex c = flat_index(id);
    return first_need[c] < first_need[c + 1];
  }
  std::span<const ChunkUse> uses_of(const ChunkTraceItem& item) const {
    return std::span(uses).subspan(item.first_use, item.num_uses);
  }
  std::span<const FlatIndex> chunks_of(const ChunkTraceItem& item, ArenaChunkEvent event) const {
    const int e = static_cast<int>(event);
    return std::span(events[e]).subspan(item.first_event[e], item.num_events[e]);
  }
};

/// The chunk trace without device updates. If `with_gradients` is false, the trace is that of an
/// evaluation, in which nothing is rounded.
ChunkTrace make_chunk_trace(const Trace& trace, const Layout& layout, bool with_gradients,
                            const Division& division = {});

/// The chunk trace `plain` with the device update of each chunk whose record is_on_device(). An
/// update that runs early comes after the item that rounds the chunk's gradient. Updates that wait
/// for the norm come at the end. REQUIRES: the gradient of each of these chunks is rounded.
ChunkTrace with_updates(const ChunkTrace& plain, const Layout& layout,
                        std::span<const ChunkRecord> chunks);

/// A chunk is alive from the first to the last item that uses it. Returns the largest number of
/// chunks that are alive at one item.
uint32_t peak_of_chunks(const ChunkTrace& chunk_trace);

/// The number of chunks of the activation arena.
uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes);

/// The parameter chunks that get gradients, in the order in which their gradients are rounded.
std::vector<ChunkIndex> round_order(const ChunkTrace& chunk_trace);
std::vector<ChunkIndex> round_order(const Trace& trace, const Layout& layout);

}  // namespace ebb
