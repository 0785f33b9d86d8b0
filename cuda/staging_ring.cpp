#include "cuda/staging_ring.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/pinned_memory.h"
#include "device/errors.h"
#include "system/copy.h"

namespace ebb {
namespace {

void check(const CudaEvent::Reached& reached) {
  if (reached.error) std::rethrow_exception(reached.error);
}

}  // namespace

StagingRing::StagingRing(CudaContext& context, size_t slot_bytes, const char* thread_name)
    : context_(context),
      slot_bytes_(slot_bytes),
      memory_(take_pinned(kStagingSlots * slot_bytes, context.node, "ring for copies")),
      before_(context) {
  try {
    for (size_t i = 0; i < kStagingSlots; ++i) {
      slots_[i] = std::make_unique<Slot>(context);
      slots_[i]->data = memory_ + i * slot_bytes;
    }
    thread_ = std::make_unique<Thread>(thread_name);
  } catch (...) {
    release_pinned(memory_, kStagingSlots * slot_bytes_);
    throw;
  }
}

StagingRing::~StagingRing() {
  thread_.reset();  // the queued copies still run
  release_pinned(memory_, kStagingSlots * slot_bytes_);
}

template <class Piece>
void StagingRing::submit(const Operation& operation, CudaEvent& copied, Piece piece) {
  const uint64_t record = copied.submit_record({});
  thread_->submit([this, operation, &copied, record, piece] {
    try {
      piece();
    } catch (...) {
      context_.failures.fail(operation, std::current_exception());
    }
    copied.reach(record, nullptr);
  });
}

void StagingRing::copy_piece(std::byte* to, const std::byte* from, size_t bytes) {
  context_.faults.check_launch("staging");
  copy_bytes(to, from, bytes);
}

// The ring's thread waits inside its functions. A wait submitted to the thread's queue would make
// the ring fail with every error before the event. A failure of the last user of a slot must not
// become a failure of the next user.
size_t StagingRing::load(cudaStream_t stream, StreamPoint& point, std::byte* to,
                         const std::byte* from, size_t bytes, bool is_first) {
  std::lock_guard lock(mutex_);
  const size_t part = std::min(bytes, slot_bytes_);
  Slot& slot = next_slot();
  const uint64_t free = slot.used ? slot.free.submit_wait() : 0;
  // Work that wrote the host memory, for example an update. The thread copies the other parts after
  // the first, so they need not wait for it. Waiting for a record after the first part would make
  // the thread idle while the GPU copies.
  if (is_first) before_.record_on(stream, point.clock());
  const uint64_t before = is_first ? before_.submit_wait() : 0;
  submit(point.operation(), slot.filled, [this, &slot, from, part, free, before] {
    const auto freed = free != 0 ? slot.free.await_end(free) : CudaEvent::Reached{};
    if (before != 0) check(before_.await(before));
    check(freed);
    copy_piece(slot.data, from, part);
  });
  slot.filled.make_wait(stream);
  EBB_CUDA(cudaMemcpyAsync(to, slot.data, part, cudaMemcpyHostToDevice, stream),
           "a copy of " + format_bytes(part));
  slot.free.record_on(stream, point.clock());
  slot.used = true;
  return part;
}

size_t StagingRing::store(cudaStream_t stream, StreamPoint& point, std::byte* to,
                          const std::byte* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  const size_t part = std::min(bytes, slot_bytes_);
  Slot& slot = next_slot();
  if (slot.used) slot.free.make_wait(stream);
  EBB_CUDA(cudaMemcpyAsync(slot.data, from, part, cudaMemcpyDeviceToHost, stream),
           "a copy of " + format_bytes(part));
  slot.filled.record_on(stream, point.clock());
  const uint64_t filled = slot.filled.submit_wait();
  submit(point.operation(), slot.free, [this, &slot, to, part, filled] {
    check(slot.filled.await(filled));
    copy_piece(to, slot.data, part);
  });
  slot.used = true;
  // After the last part the stream continues when all bytes are in host memory.
  if (part == bytes) slot.free.make_wait(stream);
  return part;
}

}  // namespace ebb
