// Like CUDA, the emulation loads code at the first launch that needs it. Before it loads code, CUDA
// may wait for all earlier work on all streams. If a stream waits for a word that a host thread has
// not written yet, this can be a deadlock: the launch waits for the stream, and the host thread
// cannot call CUDA and write the word while code is loaded. So the emulation reports an error.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace ebb::emulation {

/// A stream waits until this word is at least `value`.
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

/// Called before new code is launched. Throws LogicError if a stream waits for a host thread.
void load_code();
/// The same, if this is the first launch of the kernel since the last unload_code().
void load_kernel(const void* kernel);
/// Unloads all code, and forgets waits that a lost device never finished. REQUIRES: no streams
/// exist.
void unload_code();

}  // namespace ebb::emulation
