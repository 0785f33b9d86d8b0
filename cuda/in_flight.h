// Bounds how many operations of one GPU stream are submitted and not yet done.
//
// CUDA's queue of a stream has room for 1,020 launches or waits, but only for 56 records of events
// for which host threads wait (queue_probe on an H200, driver 580). If it is full, a CUDA call
// blocks inside the driver, and cudaEventCreate() of another thread then blocks as well. That
// thread may be the one whose write the first entry of the queue waits for. So the submitting
// thread waits in cudaEventSynchronize() before the queue is full, and holds no lock of ours.
//
// The wait is for an operation that was submitted earlier, so it ends if work is submitted in an
// order in which it can run.
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

  /// Called before each operation on the stream, with the largest number of events that it records
  /// (at least 1). May block until an earlier operation is done. Throws DeviceError.
  void add_operation(cudaStream_t stream, uint64_t num_records = 1);

 private:
  void add_record(cudaStream_t stream);

  // So at most 40 records and 5 marks are in the queue.
  static constexpr uint64_t kRecordsPerMark = 8;
  static constexpr uint64_t kNumMarks = 4;

  const CudaContext& context_;
  std::array<OwnedEvent, kNumMarks> marks_;  // mark i comes after record 8 (i + 1)
  uint64_t num_records_ = 0;
};

}  // namespace ebb
