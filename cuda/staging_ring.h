// Copies between the GPU and host memory that is not pinned, through a ring of pinned slots.
//
// A thread of the ring's own copies between home and slots, piece by piece, while the stream's
// copies go between slots and the device: events order both, so a copy is as asynchronous as one of
// pinned memory, and what the stream does next comes after it. Host memory bounds it: a core copies
// some 10 GB/s. One ring serves one direction.
//
// Errors: as CudaStream::copy(). What fails on the ring's thread is the failure of the stream whose
// copy it was, as of that copy; of a stream that has failed nothing more is copied. The ring goes
// on with the copies of others. Thread-safety: every method may be called from any thread.
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
  /// Takes kStagingSlots * slot_bytes of pinned memory; throws OutOfMemory. `thread_name`: at most
  /// 15 characters, static storage.
  StagingRing(CudaContext& context, size_t slot_bytes, const char* thread_name);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  /// `point` is the stream's. Throw DeviceError.
  void load(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
            size_t bytes);
  void store(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
             size_t bytes);

  /// Until the thread is done with what was submitted so far: before home memory goes.
  void wait() { thread_->wait_until_idle(); }

 private:
  struct Slot {
    explicit Slot(CudaContext& context) : filled(context), free(context) {}
    std::byte* data = nullptr;
    CudaEvent filled, free;
    bool used = false;  // free was recorded
  };

  Slot& next_slot() { return *slots_[next_++ % kStagingSlots]; }
  /// Submits a piece of the operation's copy to the ring's thread, and a record of `copied` behind
  /// it. What the piece throws is the failure of the operation.
  template <class Piece>
  void submit(const Operation& operation, CudaEvent& copied, Piece piece);
  void copy_piece(std::byte* to, const std::byte* from, size_t bytes);

  CudaContext& context_;
  const size_t slot_bytes_;
  std::byte* const memory_;
  std::mutex mutex_;
  std::array<std::unique_ptr<Slot>, kStagingSlots> slots_;
  CudaEvent before_;  // what the stream did before a load
  size_t next_ = 0;
  using Thread = ThreadQueue<InlineFunction<void(), 256>>;
  std::unique_ptr<Thread> thread_;  // last: it uses the rest
};

}  // namespace ebb
