// Code is loaded by the first launch that needs it, as CUDA does: for that it may let everything
// end that was submitted before, on all streams. A stream that stands at a word which a host thread
// has yet to write may then be waited for by the one who launches, and that host thread be kept
// from CUDA's calls, and from writing, by the loading. So this is an error here. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace ebb::emulation {

/// A word that a stream waits for, until it is at least `value`.
struct AwaitedWord {
  uint32_t* word = nullptr;
  uint32_t value = 0;

  bool is_written() const {
    const uint32_t seen = std::atomic_ref(*word).load(std::memory_order_acquire);
    return static_cast<int32_t>(seen - value) >= 0;
  }
  bool operator==(const AwaitedWord&) const = default;
};
void begin_wait(const AwaitedWord& awaited);
void end_wait(const AwaitedWord& awaited);

/// Before new code is launched. Throws LogicError where a stream waits for a host thread.
void load_code();
/// The same where it is this kernel's first launch since there was no stream.
void load_kernel(const void* kernel);
/// Forgets what is loaded, and waits that a lost device never made. REQUIRES: no streams exist.
void unload_code();

}  // namespace ebb::emulation
