// Bounds how many entries of one GPU stream are in CUDA's queue of this stream.
//
// The queue has room for 1,020 launches, copies, waits or records of events with times, but only
// for 56 records of events with cudaEventBlockingSync (queue_probe on an H200, driver 580). If it
// is full, a CUDA call blocks inside the driver, and cudaEventCreate() of another thread then
// blocks as well. That thread may be the one whose write the first entry of the queue waits for. So
// the submitting thread waits in cudaEventSynchronize() before the queue is full, and holds no lock
// of ours. The wait ends, because work waits only for work that was submitted earlier. One
// operation with more entries than the queue has room for still fills it.
//
// The queue should be long: one thread submits to all streams in the order of the plan, so if it
// waits for one stream, the others get no work.
//
// Thread-safety: used by the submitting thread of the stream only.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/cuda_context.h"
#include "cuda/handles.h"

namespace ebb {

class InFlight {
 public:
  /// Makes events on the context's device. Throws DeviceError.
  explicit InFlight(const CudaContext& context);

  /// Called before each operation on the stream, with the largest number of entries that it adds to
  /// the queue. May block until earlier entries have left the queue: all of them if the operation
  /// adds kMostEntries or more. Throws DeviceError.
  void add_operation(cudaStream_t stream, uint64_t num_entries);

 private:
  static constexpr uint64_t kEntriesPerMark = 64;  // more if one operation adds more
  static constexpr uint64_t kNumMarks = 12;
  /// The most entries in flight, without the marks.
  static constexpr uint64_t kMostEntries = (kNumMarks + 1) * kEntriesPerMark;

  struct Mark {
    OwnedEvent event;
    uint64_t num_entries = 0;  // between the mark before and this one
  };
  Mark& at(uint64_t number) { return marks_[number % kNumMarks]; }
  void add_mark(cudaStream_t stream);
  void await_first_mark();

  const CudaContext& context_;
  std::array<Mark, kNumMarks> marks_;
  uint64_t first_ = 0, end_ = 0;  // marks that may still be in the queue
  uint64_t after_last_mark_ = 0;  // entries
  uint64_t in_flight_ = 0;        // entries after mark first_ - 1
};

}  // namespace ebb
