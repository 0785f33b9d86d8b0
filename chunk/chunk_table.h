// The state of every chunk: its block, and the transitions that are legal next.
//
//   Absent -> Loading -> Present           a chunk is loaded
//   Absent -> Present                      a chunk gets a block without a load: sums, activations
//   Present -> Leased -> Present           a call leases a chunk and releases it
//   Loading -> Leased -> Present           a call is submitted while the load runs
//   Present -> Storing -> Absent           the content of a chunk is stored in host memory
//   Present -> Absent                      a chunk is dropped
//
// Every other transition throws a LogicError that names the chunk and both states. The table
// follows the submission of operations; events order their execution. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/layout.h"

namespace ebb {

enum class ChunkState : uint8_t { Absent, Loading, Present, Leased, Storing };
std::string_view name_of(ChunkState state);
bool is_legal(ChunkState from, ChunkState to);

class ChunkTable;

/// The right to submit work that uses one chunk. Move-only; the destructor releases the chunk.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept : table_(std::exchange(other.table_, nullptr)), id_(other.id_) {}
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }
  ChunkId chunk() const { return id_; }
  void release() noexcept;

 private:
  friend class ChunkTable;
  Lease(ChunkTable* table, ChunkId id) : table_(table), id_(id) {}
  ChunkTable* table_ = nullptr;
  ChunkId id_;
};

class ChunkTable {
 public:
  static constexpr uint32_t kNoBlock = UINT32_MAX;

  /// `num_chunks`: the number of chunks of each space. All chunks are Absent at first.
  explicit ChunkTable(const std::array<uint32_t, kNumSpaces>& num_chunks);

  /// REQUIRES: the chunk is not Absent; place() gives it a block. A transition to Absent frees the
  /// block. lease() and its Lease make the transitions to and from Leased.
  void transition(ChunkId id, ChunkState to);
  /// Absent -> Loading or Present, on a block that no other chunk has.
  void place(ChunkId id, uint32_t block, ChunkState to);
  /// Loading or Present -> Leased. A chunk has one lease at a time.
  [[nodiscard]] Lease lease(ChunkId id);

  ChunkState state(ChunkId id) const;
  /// kNoBlock if the chunk is Absent.
  uint32_t block(ChunkId id) const;
  /// The number of chunks that have a block: all that are not Absent.
  uint32_t num_present() const;

 private:
  friend class Lease;
  struct Entry {
    ChunkState state = ChunkState::Absent;
    uint32_t block = kNoBlock;
  };
  Entry& entry(ChunkId id) { return entries_[static_cast<int>(id.space)][id.index]; }
  const Entry& entry(ChunkId id) const { return entries_[static_cast<int>(id.space)][id.index]; }
  void transition_locked(ChunkId id, ChunkState to);

  mutable std::mutex mutex_;
  std::array<std::vector<Entry>, kNumSpaces> entries_;
  std::vector<bool> block_taken_;
  uint32_t num_present_ = 0;
};

}  // namespace ebb
