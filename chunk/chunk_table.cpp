#include "chunk/chunk_table.h"

#include <fmt/format.h>

#include <utility>

namespace ebb {

std::string_view name_of(ChunkState state) {
  static constexpr std::string_view kNames[] = {"Absent", "Loading", "Present", "Leased",
                                                "Storing"};
  return kNames[static_cast<int>(state)];
}

bool is_legal(ChunkState from, ChunkState to) {
  //                                   to: Absent Loading Present Leased Storing
  static constexpr bool kLegal[5][5] = {{false, true, true, false, false},    // from Absent
                                        {false, false, true, true, false},    // Loading
                                        {true, false, false, true, true},     // Present
                                        {false, false, true, false, false},   // Leased
                                        {true, false, false, false, false}};  // Storing
  return kLegal[static_cast<int>(from)][static_cast<int>(to)];
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    table_ = std::exchange(other.table_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void Lease::release() noexcept {
  if (ChunkTable* table = std::exchange(table_, nullptr)) {
    std::lock_guard lock(table->mutex_);
    table->entry(id_).state = ChunkState::Present;
  }
}

ChunkTable::ChunkTable(const std::array<uint32_t, kNumSpaces>& num_chunks) {
  for (int space = 0; space < kNumSpaces; ++space) entries_[space].resize(num_chunks[space]);
}

void ChunkTable::transition_locked(ChunkId id, ChunkState to) {
  Entry& e = entry(id);
  if (!is_legal(e.state, to)) {
    throw LogicError(fmt::format("{} chunk {}: {} -> {}", name_of(id.space), id.index,
                                 name_of(e.state), name_of(to)));
  }
  e.state = to;
  if (to == ChunkState::Absent) {
    block_taken_[e.block] = false;
    e.block = kNoBlock;
    --num_present_;
  }
}

void ChunkTable::transition(ChunkId id, ChunkState to) {
  std::lock_guard lock(mutex_);
  transition_locked(id, to);
}

void ChunkTable::place(ChunkId id, uint32_t block, ChunkState to) {
  std::lock_guard lock(mutex_);
  if (block >= block_taken_.size()) block_taken_.resize(block + 1, false);
  EBB_CHECK(!block_taken_[block], fmt::format("block {} of {} chunk {} belongs to another chunk",
                                              block, name_of(id.space), id.index));
  transition_locked(id, to);
  block_taken_[block] = true;
  entry(id).block = block;
  ++num_present_;
}

Lease ChunkTable::lease(ChunkId id) {
  transition(id, ChunkState::Leased);
  return Lease(this, id);
}

ChunkState ChunkTable::state(ChunkId id) const {
  std::lock_guard lock(mutex_);
  return entry(id).state;
}

uint32_t ChunkTable::block(ChunkId id) const {
  std::lock_guard lock(mutex_);
  return entry(id).block;
}

uint32_t ChunkTable::num_present() const {
  std::lock_guard lock(mutex_);
  return num_present_;
}

}  // namespace ebb
