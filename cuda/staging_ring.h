// Copies between the GPU and host memory that is not pinned, through a ring of staging buffers, the
// slots.
//
// A thread of the ring copies between host memory and slots, slot by slot, while the stream copies
// between slots and the device. Events order both. So a copy is asynchronous, like a copy of pinned
// memory, and the next operation of the stream comes after it. The speed is that of one core, about
// 10 GB/s. The device has two rings: all copies of one ring are loads, or all are stores.
//
// Errors: as CudaStream::copy(). A failure on the ring's thread counts as a failure of that copy in
// the stream that submitted it. Later copies of a failed stream are skipped. Copies of other
// streams continue. Thread-safety: every method may be called from any thread.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "cuda/cuda_context.h"
#include "cuda/cuda_event.h"
#include "device/inline_function.h"
#include "device/staging.h"
#include "system/thread_queue.h"

namespace ebb {

class StagingRing {
 public:
  /// Allocates kStagingSlots * slot_bytes of pinned memory; throws OutOfMemory. `thread_name`: at
  /// most 15 characters, static storage.
  StagingRing(CudaContext& context, size_t slot_bytes, const char* thread_name);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  /// Submit the next part of a copy from host to device (load) or from device to host (store), as
  /// many of the `bytes` that are left as a slot holds, and return its size. `point` is the point
  /// of `stream` (failures.h), already at the operation of this copy. `is_first`: no part of this
  /// copy was loaded before. Throw DeviceError.
  size_t load(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
              size_t bytes, bool is_first);
  size_t store(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
               size_t bytes);
  /// The most entries that a part adds to CUDA's queue of its stream.
  static constexpr uint64_t kMostEntries = 4;

  /// Blocks until the thread has finished all copies submitted so far. Called before memory of
  /// MemoryKind::Home is freed.
  void wait() { thread_->wait_until_idle(); }

 private:
  struct Slot {
    explicit Slot(CudaContext& context) : filled(context), free(context) {}
    std::byte* data = nullptr;
    CudaEvent filled, free;  // the data is in the slot; the slot may be filled again
    bool used = false;       // `free` has a record
  };

  Slot& next_slot() { return *slots_[next_++ % kStagingSlots]; }
  /// The thread of the ring runs piece(), which copies one part of the operation's copy, and then
  /// reaches a record of `copied`. If piece() throws, the exception is the failure of the
  /// operation.
  template <class Piece>
  void submit(const Operation& operation, CudaEvent& copied, Piece piece);
  void copy_piece(std::byte* to, const std::byte* from, size_t bytes);

  CudaContext& context_;
  const size_t slot_bytes_;
  std::byte* const memory_;
  std::mutex mutex_;
  std::array<std::unique_ptr<Slot>, kStagingSlots> slots_;
  CudaEvent before_;  // the stream's work before a load
  size_t next_ = 0;
  using Thread = ThreadQueue<InlineFunction<void(), 256>>;
  std::unique_ptr<Thread> thread_;  // last: it uses the members above
};

}  // namespace ebb
