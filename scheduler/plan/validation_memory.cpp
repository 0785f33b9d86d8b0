#include "scheduler/plan/validation_memory.h"

#include <algorithm>
#include <utility>

namespace ebb::validation {

Memory::Memory(const Layout& layout, uint32_t num_arena_chunks, uint32_t num_blocks,
               uint32_t num_fetch_slots, const Order& order, Report& report)
    : layout_(layout),
      order_(order),
      report_(report),
      blocks_(num_blocks),
      slots_(num_fetch_slots),
      copies_(layout.num_chunks()) {
  for (size_t s = 0; s < kNumSpaces; ++s) {
    const Space space = static_cast<Space>(s);
    const uint32_t count =
        space == Space::Activations ? num_arena_chunks : layout.num_chunks(space);
    first_flat_[s + 1] = first_flat_[s] + count;
  }
  chunks_.resize(first_flat_[kNumSpaces]);
  for (ChunkIndex c{0}; c < layout.num_chunks(); ++c) {
    Chunk& weights = chunks_[flat_index({Space::Weights, c})];
    weights.newest = weights.home.version = 1;
  }
}

bool Memory::exists(ChunkId id) const {
  const size_t space = static_cast<size_t>(id.space);
  return space < kNumSpaces && id.index < first_flat_[space + 1] - first_flat_[space];
}

std::string Memory::name(FlatIndex chunk) const {
  size_t space = 0;
  while (chunk >= first_flat_[space + 1]) ++space;
  return fmt::format("{} chunk {}", name_of(static_cast<Space>(space)), chunk - first_flat_[space]);
}

// ---- Order

void Memory::require_after_all(const Copy& copy, FlatIndex chunk, const char* where) {
  const auto require = [&](OpIndex earlier, const char* does) {
    if (comes_after(earlier)) return;
    require_after(earlier, "{} {}{}", does, name(chunk), where);
  };
  require(copy.writer, "writes");
  for (OpIndex reader : copy.readers.last) require(reader, "reads");
}

// ---- On the device

bool Memory::is_on_device(FlatIndex c) {
  if (chunks_[c].block == kNone) {
    report_.complain("{} is not on the device", name(c));
    return false;
  }
  chunks_[c].used = true;
  const OpIndex writer = chunks_[c].device.writer;
  if (!comes_after(writer)) require_after(writer, "brings or writes {}", name(c));
  return true;
}

void Memory::require_content(FlatIndex c) {
  const Chunk& chunk = chunks_[c];
  if (chunk.device.version == chunk.newest) return;
  report_.complain("{} in block {} does not hold what was written last", name(c), chunk.block);
}

void Memory::read(FlatIndex c) {
  if (!is_on_device(c)) return;
  if (chunks_[c].updated) report_.complain("{} is read after its update", name(c));
  if (chunks_[c].newest == 0) report_.complain("{} was never written", name(c));
  require_content(c);
  add_reader(chunks_[c].device);
}

void Memory::write(FlatIndex c) {
  if (!is_on_device(c)) return;
  Chunk& chunk = chunks_[c];
  if (chunk.newest > 0) require_content(c);
  require_after_all(chunk.device, c);
  chunk.device = {.version = ++chunk.newest, .writer = report_.at(), .readers = {}};
}

void Memory::read(Space space, uint64_t first, uint64_t count) {
  const ChunkRange range = layout_.chunks(space, first, count);
  for (uint32_t i = range.first; i < range.last; ++i) read(flat_index({space, i}));
}

void Memory::write(Space space, uint64_t first, uint64_t count) {
  const ChunkRange range = layout_.chunks(space, first, count);
  for (uint32_t i = range.first; i < range.last; ++i) write(flat_index({space, i}));
}

void Memory::forget(ChunkId id) {
  Chunk& chunk = chunks_[flat_index(id)];
  chunk.newest = chunk.device.version = chunk.home.version = 0;
}

// ---- Moves

uint32_t Memory::read_source(const Op& load, bool from_copy) {
  const FlatIndex c = flat_index(load.chunk);
  if (from_copy) return read_copy(c, copies_[load.chunk.index], "the copy of this machine");
  return load.slot == kNone ? read_home(c) : read_slot(load);
}

void Memory::bring(const Op& op, uint32_t version) {
  const FlatIndex c = flat_index(op.chunk);
  if (op.block >= blocks_.size()) {
    report_.complain("{} gets block {} of {}", name(c), op.block, blocks_.size());
    return;
  }
  allocate(c, op.block);
  if (op.from == Tier::None) return;
  loaded_bytes_ += layout_.used_bytes(op.chunk);
  if (is_gather(op)) gathered_bytes_ += layout_.used_bytes(op.chunk);
  chunks_[c].device.version = version;
}

void Memory::allocate(FlatIndex c, BlockIndex b) {
  Chunk& chunk = chunks_[c];
  Block& block = blocks_[b];
  if (chunk.block != kNone) report_.complain("{} has block {} already", name(c), chunk.block);
  if (block.occupant != kNone) {
    report_.complain("{} gets block {}, which {} has", name(c), b, name(block.occupant));
  } else {
    peak_blocks_ = std::max(peak_blocks_, ++num_taken_);
  }
  require_after(block.last_drop, "frees block {}", b);
  require_after(chunk.last_drop, "drops {} from its block", name(c));
  block.occupant = c;
  chunk.block = b;
  chunk.used = false;
  ++chunk.stay;
  chunk.device = {.version = 0, .writer = report_.at(), .readers = {}};
}

/// Returns the version of the content in the memory of its owner, which is copied now.
uint32_t Memory::read_home(FlatIndex c) {
  Chunk& chunk = chunks_[c];
  if (chunk.home.version == 0) report_.complain("{} has no content in host memory", name(c));
  if (chunk.home.version != chunk.newest)
    report_.complain("{} in host memory is out of date", name(c));
  const OpIndex writer = chunk.home.writer;
  if (!comes_after(writer)) require_after(writer, "writes {} in host memory", name(c));
  add_reader(chunk.home);
  return chunk.home.version;
}

void Memory::fetch(const Op& op, size_t bytes) {
  const FlatIndex c = flat_index(op.chunk);
  if (op.slot == kNone) {
    fetched_bytes_ += bytes;
    Copy& copy = copies_[op.chunk.index];
    require_after_all(copy, c, " in the copy of this machine");
    copy = {.version = read_home(c), .writer = report_.at(), .readers = {}};
    return;
  }
  if (op.slot >= slots_.size()) {
    return report_.complain("fetches {} to slot {} of {}", name(c), op.slot, slots_.size());
  }
  fetched_bytes_ += bytes;
  Slot& slot = slots_[op.slot];
  require_after_all(slot.copy, slot.chunk == kNone ? c : slot.chunk, " in its slot");
  slot = {.chunk = c, .copy = {.version = read_home(c), .writer = report_.at(), .readers = {}}};
}

/// The same for fetched weights in their slot.
uint32_t Memory::read_slot(const Op& load) {
  const FlatIndex c = flat_index(load.chunk);
  if (load.slot >= slots_.size() || slots_[load.slot].chunk != c) {
    report_.complain("{} is not in slot {}", name(c), load.slot);
    return 0;
  }
  return read_copy(c, slots_[load.slot].copy, "its slot");
}

uint32_t Memory::read_copy(FlatIndex c, Copy& copy, const char* where) {
  if (copy.version != chunks_[c].newest) {
    report_.complain("{} in {} is out of date", name(c), where);
  }
  if (copy.writer == kNone) report_.complain("{} in {} is not fetched", name(c), where);
  require_after(copy.writer, "fetches {}", name(c));
  add_reader(copy);
  return copy.version;
}

void Memory::receive_copy(ChunkId id) {
  copies_[id.index] = {
      .version = chunks_[flat_index(id)].newest, .writer = report_.at(), .readers = {}};
}

void Memory::store(const Op& op, size_t bytes) {
  const FlatIndex c = flat_index(op.chunk);
  Chunk& chunk = chunks_[c];
  if (op.chunk.space == Space::Weights) {
    report_.complain("{} has no place in host memory", name(c));
    return;
  }
  if (!is_share(op)) stored_bytes_ += bytes;
  read(c);
  require_after_all(chunk.home, c, " in host memory");
  chunk.home = {.version = chunk.device.version, .writer = report_.at(), .readers = {}};
}

void Memory::drop(const Op& op) {
  const FlatIndex c = flat_index(op.chunk);
  Chunk& chunk = chunks_[c];
  if (chunk.block == kNone || chunk.block != op.block) {
    report_.complain("{} is not in block {}", name(c), op.block);
    return;
  }
  if (!chunk.used)
    report_.complain("{} was loaded into block {} but not used", name(c), chunk.block);
  require_after_all(chunk.device, c);
  chunk.last_drop = report_.at();
  blocks_[chunk.block] = {.occupant = kNone, .last_drop = report_.at()};
  chunk.block = kNone;
  --num_taken_;
}

void Memory::expect_deferred_update(ChunkId id) { ++chunks_[flat_index(id)].newest; }

void Memory::update_home(const Op& update) {
  const FlatIndex c = flat_index(update.chunk);
  Chunk& chunk = chunks_[c];
  require_after_all(chunk.home, c, " in host memory");
  chunk.home.writer = report_.at();
  if (!update.deferred) {
    chunk.updated = true;
    ++chunk.newest;
  }
  chunk.home.version = chunk.newest;
}

void Memory::speculate(ChunkId id) {
  Chunk& chunk = chunks_[flat_index(id)];
  require_after_all(chunk.home, flat_index(id), " in host memory");
  chunk.home = {.version = 0, .writer = report_.at(), .readers = {}};
  chunk.updated = true;
}

void Memory::update_elsewhere(ChunkId id) {
  Chunk& chunk = chunks_[flat_index(id)];
  require_after_all(chunk.home, flat_index(id), " in host memory");
  chunk.home = {.version = 0, .writer = report_.at(), .readers = {}};
  ++chunk.newest;
  chunk.updated = true;
}

void Memory::receive_home(ChunkId id) {
  Chunk& chunk = chunks_[flat_index(id)];
  chunk.home = {.version = chunk.newest, .writer = report_.at(), .readers = {}};
}

void Memory::update_here(ChunkId id) {
  write(id);
  chunks_[flat_index(id)].updated = true;
}

void Memory::expect_residents(std::span<const ChunkRecord> chunks) {
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    if (!chunks[c].begins_on_device()) continue;
    const ChunkId id{Space::Weights, c};
    const BlockIndex block = chunks[c].first_block;
    if (block >= blocks_.size()) {
      report_.complain("begins with weights chunk {} in block {}", c, block);
      continue;
    }
    allocate(flat_index(id), block);
    Chunk& chunk = chunks_[flat_index(id)];
    chunk.device.version = chunk.home.version;
    chunk.resident = true;
  }
}

void Memory::check_end(std::span<const ChunkRecord> chunks) {
  std::vector<bool> is_resident(blocks_.size(), false);
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    if (!chunks[c].ends_on_device()) continue;
    const ChunkId id{Space::Weights, c};
    const BlockIndex block = chunks[c].last_block;
    if (block >= blocks_.size() || blocks_[block].occupant != flat_index(id)) {
      report_.complain("does not end with weights chunk {} in block {}", c, block);
      continue;
    }
    is_resident[block] = true;
    Chunk& chunk = chunks_[flat_index(id)];
    if (!std::exchange(chunk.resident, false))
      report_.complain("does not begin with {}", name(flat_index(id)));
    if (chunk.device.version == chunk.newest) continue;
    report_.complain("ends with {} as it was before its update", name(flat_index(id)));
  }
  for (FlatIndex c{0}; c < chunks_.size(); ++c) {
    if (chunks_[c].resident) report_.complain("begins with {}, but does not end with it", name(c));
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (blocks_[b].occupant == kNone || is_resident[b]) continue;
    report_.complain("ends with {} in block {}", name(blocks_[b].occupant), b);
  }
}

}  // namespace ebb::validation
