// Measures how long a CUDA stream works, waits and is idle.
//
// A mark is a timing event on the stream at the point where the stream changes from one state to
// another: before the first operation after a wait, before a wait, and when a host thread
// synchronizes with the stream. The times between marks are read later, when the events are done.
// The time that the host needs between two submissions without a wait between them counts as work.
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "cuda/handles.h"

namespace ebb {

class BusyTime {
 public:
  BusyTime();

  enum class Doing : uint8_t { Nothing, Working, Waiting };

  /// From this point of the stream on, the stream is in the state `doing`. If all marks are in use,
  /// the call does nothing, and the time counts for the previous state.
  void mark(cudaStream_t stream, Doing doing) noexcept;
  /// Adds the times between all marks whose events are done.
  void count() noexcept;

  double working_s() const { return working_s_; }
  double waiting_s() const { return waiting_s_; }

 private:
  static constexpr uint32_t kNumMarks = 1024;

  struct Mark {
    OwnedEvent event;
    Doing doing = Doing::Nothing;
  };
  Mark& at(uint64_t number) { return marks_[number % kNumMarks]; }

  std::vector<Mark> marks_;
  uint64_t first_ = 0, end_ = 0;  // marks not counted yet
  Doing doing_ = Doing::Nothing;
  double working_s_ = 0, waiting_s_ = 0;
};

}  // namespace ebb
