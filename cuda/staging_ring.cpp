#include "cuda/staging_ring.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/cuda_stream.h"
#include "cuda/pinned_memory.h"
#include "device/errors.h"
#include "device/host/copy.h"

namespace ebb {

StagingRing::StagingRing(CudaContext& context, size_t slot_bytes, const char* thread_name)
    : slot_bytes_(slot_bytes),
      memory_(take_pinned(kNumSlots * slot_bytes, context.node, "ring for copies")),
      before_(context) {
  try {
    for (size_t i = 0; i < kNumSlots; ++i) {
      slots_[i] = std::make_unique<Slot>(context);
      slots_[i]->data = memory_ + i * slot_bytes;
    }
    thread_ = std::make_unique<CudaHostStream>(context, thread_name);
  } catch (...) {
    release_pinned(memory_, kNumSlots * slot_bytes_);
    throw;
  }
}

StagingRing::~StagingRing() {
  thread_.reset();  // what is queued still runs
  release_pinned(memory_, kNumSlots * slot_bytes_);
}

void StagingRing::load(cudaStream_t stream, StreamPoint& point, std::byte* to,
                       const std::byte* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  before_.record_on(stream, point.clock());
  thread_->wait(before_);  // what wrote the home, an update say
  while (bytes > 0) {
    const size_t part = std::min(bytes, slot_bytes_);
    Slot& slot = next_slot();
    if (slot.used) thread_->wait(slot.free);
    thread_->call({.name = "staging"},
                  [data = slot.data, from, part] { copy_bytes(data, from, part); });
    thread_->record(slot.filled);
    point.merge(slot.filled.make_wait(stream));
    EBB_CUDA(cudaMemcpyAsync(to, slot.data, part, cudaMemcpyHostToDevice, stream),
             "a copy of " + format_bytes(part));
    slot.free.record_on(stream, point.clock());
    slot.used = true;
    to += part;
    from += part;
    bytes -= part;
  }
}

void StagingRing::store(cudaStream_t stream, StreamPoint& point, std::byte* to,
                        const std::byte* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  const Slot* last = nullptr;
  while (bytes > 0) {
    const size_t part = std::min(bytes, slot_bytes_);
    Slot& slot = next_slot();
    if (slot.used) point.merge(slot.free.make_wait(stream));
    EBB_CUDA(cudaMemcpyAsync(slot.data, from, part, cudaMemcpyDeviceToHost, stream),
             "a copy of " + format_bytes(part));
    slot.filled.record_on(stream, point.clock());
    thread_->wait(slot.filled);
    thread_->call({.name = "staging"},
                  [data = slot.data, to, part] { copy_bytes(to, data, part); });
    thread_->record(slot.free);
    slot.used = true;
    last = &slot;
    to += part;
    from += part;
    bytes -= part;
  }
  // The stream goes on when all of it is at home.
  if (last != nullptr) point.merge(last->free.make_wait(stream));
}

}  // namespace ebb
