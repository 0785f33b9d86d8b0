// The memory in which the ranks of one machine meet: private memory if the ranks are threads,
// shared memory if they are processes. Zeroed memory of control_block_bytes(size) bytes is a valid
// control block for threads, except for its `size` and `ranks_per_machine`.
//
// It has a slot for each rank of the run, also for those of other machines. Their slots are written
// by one process of this machine, which receives their messages (comm/machine_link.h).
//
// Thread-safety: each comment says who writes a field. A FutexWord orders what it announces.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/futex_word.h"

namespace ebb {

inline constexpr size_t kExchangePieceBytes = 16 << 10;  // longer exchanges take several rounds
inline constexpr size_t kFailureBytes = 1024;            // of a message, with its final 0

/// What a rank gives in one round of a collective call.
struct RoundEntry {
  uint32_t operation;
  uint64_t bytes;  // of the whole call
  std::byte piece[kExchangePieceBytes];
};

/// Far: the rank has joined on another machine.
enum class RankState : uint32_t { Absent, Joined, Far, Left };

/// Written by one rank, read by all.
struct alignas(64) RankSlot {
  FutexWord arrived;      // the number of rounds for which the rank has written its entry
  RoundEntry entries[2];  // round i uses entry i % 2

  std::atomic<uint32_t> announced;  // 1: a thread of the rank has announced a failure, or begins to
  char failure[kFailureBytes];      // written before ControlBlock::failed names this slot

  std::atomic<uint32_t> progress;  // changes when the rank gets further

  // Only ranks that are processes use these (comm/rank_watch.h).
  FutexWord state;             // RankState
  std::atomic<int32_t> pid;    // 0: no process is this rank yet
  std::atomic<uint32_t> beat;  // changes as long as the process runs
  pthread_mutex_t alive;       // robust; a thread of the process holds it while the rank is joined

  bool is(RankState wanted) const { return state.load() == static_cast<uint32_t>(wanted); }
};

/// A slot for each rank follows, and one for the process that starts the ranks.
struct alignas(64) ControlBlock {
  uint32_t format;  // of shared memory: kControlBlockFormat
  uint32_t size;    // the number of ranks
  uint32_t ranks_per_machine;
  std::atomic<uint32_t> failed;  // 0: no failure; i + 1: slot i has the message of the first one

  RankSlot& slot(uint32_t rank) { return reinterpret_cast<RankSlot*>(this + 1)[rank]; }
};

/// Another number for each change of the structures above.
inline constexpr uint32_t kControlBlockFormat = 0xebb00003;

/// Announces a failure, unless one was announced before. Any thread of the slot's rank.
void announce_failure(ControlBlock& block, uint32_t slot, std::string_view text) noexcept;
/// Throws RankLost if a failure was announced.
void throw_if_failed(ControlBlock& block);

inline size_t control_block_bytes(uint32_t size) {
  return sizeof(ControlBlock) + (size_t{size} + 1) * sizeof(RankSlot);
}

}  // namespace ebb
