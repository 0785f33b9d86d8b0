#include "scheduler/plan/validation_activations.h"

#include <algorithm>
#include <numeric>

namespace ebb::validation {

uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes) {
  size_t end = trace.arena_bytes;
  for (const ActivationSpan& span : trace.activations) {
    end = std::max(end, span.offset + span.bytes);
  }
  return static_cast<uint32_t>((end + chunk_bytes - 1) / chunk_bytes);
}

Activations::Activations(const Trace& trace, const Layout& layout, Memory& memory, Report& report)
    : trace_(trace),
      chunk_bytes_(layout.chunk_bytes()),
      memory_(memory),
      report_(report),
      num_live_(validation::num_arena_chunks(trace, layout.chunk_bytes()), 0) {
  auto rest = trace_.idle_intervals.begin();
  for (uint32_t s = 0; s < trace_.activations.size(); ++s) {
    CallIndex first = trace_.activations[s].first_call;
    for (; rest != trace_.idle_intervals.end() && rest->span == s; ++rest) {
      add(s, first, rest->last_before);
      first = rest->first_after;
    }
    add(s, first, trace_.activations[s].last_call);
  }
  by_begin_.resize(busy_.size());
  std::iota(by_begin_.begin(), by_begin_.end(), 0u);
  by_end_ = by_begin_;
  std::ranges::sort(by_begin_, {}, [&](uint32_t b) { return busy_[b].first_call; });
  std::ranges::sort(by_end_, {}, [&](uint32_t b) { return busy_[b].last_call; });
}

void Activations::add(uint32_t s, CallIndex first, CallIndex last) {
  const ActivationSpan& span = trace_.activations[s];
  busy_.push_back({s, first, last, first == span.first_call, last == span.last_call,
                   static_cast<uint32_t>(stays_.size())});
  const ChunkRange chunks = chunks_of(busy_.back());
  stays_.resize(stays_.size() + chunks.last - chunks.first);
}

ChunkRange Activations::chunks_of(const Busy& busy) const {
  const ActivationSpan& span = trace_.activations[busy.span];
  return {static_cast<uint32_t>(span.offset / chunk_bytes_),
          static_cast<uint32_t>((span.offset + span.bytes + chunk_bytes_ - 1) / chunk_bytes_)};
}

/// The content of an arena chunk matters as long as a span in it is live.
void Activations::begin(CallIndex call) {
  for (; next_begin_ < by_begin_.size(); ++next_begin_) {
    const Busy& busy = busy_[by_begin_[next_begin_]];
    if (busy.first_call > call) return;
    const ChunkRange chunks = chunks_of(busy);
    for (uint32_t c = chunks.first; c < chunks.last; ++c) {
      const ChunkId id{Space::Activations, c};
      if (busy.is_first) {
        if (num_live_[c]++ == 0) memory_.forget(id);
        memory_.write(id);
      } else {
        memory_.read(id);
      }
      stays_[busy.first_stay + c - chunks.first] = memory_.stay(id);
    }
  }
}

/// Any call of a busy time may have written to the span.
void Activations::end(CallIndex call) {
  for (; next_end_ < by_end_.size(); ++next_end_) {
    const Busy& busy = busy_[by_end_[next_end_]];
    if (busy.last_call > call) return;
    const ChunkRange chunks = chunks_of(busy);
    for (uint32_t c = chunks.first; c < chunks.last; ++c) {
      const ChunkId id{Space::Activations, c};
      memory_.write(id);
      if (memory_.stay(id) != stays_[busy.first_stay + c - chunks.first]) {
        report_.complain("activations chunk {} was dropped between calls {} and {}", c,
                         busy.first_call, busy.last_call);
      }
      if (busy.is_last) --num_live_[c];
    }
  }
}

}  // namespace ebb::validation
