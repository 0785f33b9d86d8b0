// Checks that activations are on the device when the calls of a trace use them, with the content
// that they had before they were idle. Part of validate(); one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/trace.h"
#include "scheduler/plan/validation_memory.h"

namespace ebb::validation {

/// Follows the arena chunks of the spans of a trace.
uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes);

class Activations {
 public:
  /// All arguments must outlive this.
  Activations(const Trace& trace, const Layout& layout, Memory& memory, Report& report);

  /// Called before and after the other checks of a call; calls come in order.
  void begin(CallIndex call);
  void end(CallIndex call);

 private:
  /// A time in which calls use a span: from its begin or an idle interval to the next, or to its
  /// end.
  struct Busy {
    uint32_t span = 0;
    CallIndex first_call, last_call;
    bool is_first = false, is_last = false;  // of its span
    uint32_t first_stay = 0;                 // in stays_: one entry for each of its chunks
  };
  ChunkRange chunks_of(const Busy& busy) const;
  void add(uint32_t span, CallIndex first_call, CallIndex last_call);

  const Trace& trace_;
  const size_t chunk_bytes_;
  Memory& memory_;
  Report& report_;
  std::vector<Busy> busy_;
  std::vector<uint32_t> by_begin_, by_end_;  // in busy_, in order of time
  size_t next_begin_ = 0, next_end_ = 0;
  std::vector<uint32_t> stays_;     // the stay of each chunk when a busy time began
  std::vector<uint32_t> num_live_;  // [arena chunk] spans
};

}  // namespace ebb::validation
