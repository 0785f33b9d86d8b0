// How long a CUDA stream works, waits and has nothing to do: marks between which time is counted.
//
// A mark is a timing event on the stream where it changes from one to the other: before the first
// operation after a wait, before a wait, and when somebody waits for the stream. Times between
// marks are read later, when they are done. What the host takes between submitting two operations
// without a wait between them counts as work. Not thread-safe.
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

  /// From here on in the stream's order. Where all marks are in use, the time goes to what was
  /// before.
  void mark(cudaStream_t stream, Doing doing) noexcept;
  /// Counts what is over by now.
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
