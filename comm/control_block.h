// The memory in which the ranks of one machine meet: private memory if the ranks are threads,
// shared memory if they are processes. Zeroed memory of control_block_bytes(size) bytes is a valid
// control block, except for its `size`.
//
// Thread-safety: each comment says who writes a field. A FutexWord orders what it announces.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

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

/// Written by one rank, read by all.
struct alignas(64) RankSlot {
  FutexWord arrived;      // the number of rounds for which the rank has written its entry
  RoundEntry entries[2];  // round i uses entry i % 2

  char failure[kFailureBytes];  // written before ControlBlock::failed names this slot
};

struct alignas(64) ControlBlock {
  uint32_t size;                 // the number of ranks
  std::atomic<uint32_t> failed;  // 0: no failure; i + 1: slot i has the message of the first one

  RankSlot& slot(uint32_t rank) { return reinterpret_cast<RankSlot*>(this + 1)[rank]; }
};

inline size_t control_block_bytes(uint32_t size) {
  return sizeof(ControlBlock) + size * sizeof(RankSlot);
}

}  // namespace ebb
