#include "cuda/cuda_event.h"

#include <atomic>
#include <utility>

#include "cuda/handles.h"
#include "device/errors.h"
#include "device/host/quiet_lock.h"

namespace ebb {
CudaEvent::CudaEvent(CudaContext& context)
    : context_(context), flag_((context.enter(), context.flags.take())) {
  try {
    slots_.push_back({.event = make_event(cudaEventBlockingSync)});
  } catch (...) {
    context_.flags.give_back(flag_);
    throw;
  }
}

CudaEvent::~CudaEvent() {
  (void)all_reached();  // whoever let the last waiter go has left the lock
  (void)context_.try_enter();
  context_.flags.give_back(flag_);
}

// ---- Records

/// The slot of the record before where nobody waits for it; a new one is made only where all are
/// waited for.
uint32_t CudaEvent::take_free_slot() {
  {
    QuietLock lock(mutex_);
    if (slots_[slot_].num_waits == 0) return slot_;
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].num_waits == 0) return i;
    }
  }
  OwnedEvent event = make_event(cudaEventBlockingSync);
  QuietLock lock(mutex_);
  slots_.push_back({.event = std::move(event)});
  return static_cast<uint32_t>(slots_.size() - 1);
}

void CudaEvent::record_on(cudaStream_t stream, const StreamClock& point) {
  context_.enter();  // an event is of the device that its thread uses
  const uint32_t slot = take_free_slot();
  EBB_CUDA(cudaEventRecord(event_of(slot), stream), "recording an event");
  QuietLock lock(mutex_);
  slots_[slot].point = point;
  where_ = Where::Device;
  slot_ = slot;
  point_ = point;
}

void CudaEvent::expect_record(const StreamClock& point) {
  QuietLock lock(mutex_);
  expected_ = point;
}

uint64_t CudaEvent::submit_record() {
  const uint64_t generation = HostEvent::submit_record();
  QuietLock lock(mutex_);
  where_ = Where::Host;
  point_ = std::exchange(expected_, {});
  return generation;
}

void CudaEvent::reach(uint64_t generation, std::exception_ptr error, double time_s) {
  give_order(flag_);
  HostEvent::reach(generation, std::move(error), time_s);
}

void CudaEvent::note_reached(uint64_t all_reached) {
  std::atomic_ref(*flag_).store(static_cast<uint32_t>(all_reached), std::memory_order_release);
}

// ---- Waits

uint32_t CudaEvent::hold_latest() const {
  QuietLock lock(mutex_);
  if (where_ != Where::Device) return kNoSlot;
  ++slots_[slot_].num_waits;
  return slot_;
}

void CudaEvent::let_go(uint32_t slot) const {
  QuietLock lock(mutex_);
  --slots_[slot].num_waits;
}

cudaEvent_t CudaEvent::event_of(uint32_t slot) const {
  QuietLock lock(mutex_);
  return slots_[slot].event.get();
}

StreamClock CudaEvent::point() const {
  QuietLock lock(mutex_);
  return point_;
}

StreamClock CudaEvent::make_wait(cudaStream_t stream) const {
  context_.enter();
  const uint32_t slot = hold_latest();
  if (slot != kNoSlot) {
    const cudaError_t status = cudaStreamWaitEvent(stream, event_of(slot), 0);
    let_go(slot);
    EBB_CUDA(status, "making a stream wait for an event");
  } else if (const uint64_t generation = latest(); context_.waits_in_place) {
    (void)HostEvent::await(generation);  // what failed stands before the point
  } else if (!HostEvent::done()) {
    const CUresult status = context_.driver.stream_wait_value32(
        stream, reinterpret_cast<CUdeviceptr>(flag_), static_cast<uint32_t>(generation),
        CU_STREAM_WAIT_VALUE_GEQ);
    if (status != CUDA_SUCCESS) {
      throw_driver_error(context_.driver, status, "making a stream wait for a host thread",
                         "is this GPU older than compute capability 8.0? use --device host");
    }
  }
  return point();
}

uint64_t CudaEvent::submit_wait() const {
  const uint32_t slot = hold_latest();
  return slot == kNoSlot ? latest() : kOnDevice | slot;
}

HostEvent::Reached CudaEvent::await_slot(uint32_t slot) const {
  Reached reached;
  try {
    context_.enter();
    EBB_CUDA(cudaEventSynchronize(event_of(slot)), "waiting for an event");
  } catch (...) {
    reached.error = std::current_exception();
  }
  reached.time_s = steady_now_s();
  return reached;
}

HostEvent::Reached CudaEvent::await(uint64_t token) const {
  if ((token & kOnDevice) == 0) return HostEvent::await(token);
  const auto slot = static_cast<uint32_t>(token & ~kOnDevice);
  Reached reached = await_slot(slot);
  StreamClock point;
  {
    QuietLock lock(mutex_);
    point = slots_[slot].point;
  }
  if (!reached.error) reached.error = context_.failures.error_before(point);
  let_go(slot);
  return reached;
}

HostEvent::Reached CudaEvent::await_end(uint64_t token) const {
  if ((token & kOnDevice) == 0) return {.time_s = HostEvent::await(token).time_s, .error = {}};
  const auto slot = static_cast<uint32_t>(token & ~kOnDevice);
  Reached reached = await_slot(slot);
  let_go(slot);
  return reached;
}

bool CudaEvent::is_over(uint64_t token) const {
  if ((token & kOnDevice) == 0) return HostEvent::is_over(token);
  return query_slot(static_cast<uint32_t>(token & ~kOnDevice)) != cudaErrorNotReady;
}

void CudaEvent::drop_wait(uint64_t token) const {
  if ((token & kOnDevice) != 0) let_go(static_cast<uint32_t>(token & ~kOnDevice));
}

void CudaEvent::synchronize() const {
  const Reached reached = await(submit_wait());
  if (reached.error) std::rethrow_exception(reached.error);
  if (const auto error = context_.failures.error_before(point())) std::rethrow_exception(error);
}

cudaError_t CudaEvent::query_slot(uint32_t slot) const {
  const cudaError_t status = context_.try_enter();
  return status == cudaSuccess ? query(event_of(slot)) : status;
}

bool CudaEvent::done() const {
  const uint32_t slot = hold_latest();
  if (slot == kNoSlot) return HostEvent::done();
  const cudaError_t status = query_slot(slot);
  let_go(slot);
  return status != cudaErrorNotReady;  // a lost device has nothing more to wait for
}

double CudaEvent::time_s() const {
  const uint32_t slot = hold_latest();
  if (slot == kNoSlot) return HostEvent::time_s();
  // Held until it is read: another record of this event may take the slot otherwise.
  const struct Held {
    const CudaEvent& event;
    uint32_t slot;
    ~Held() { event.let_go(slot); }
  } held{*this, slot};
  const cudaError_t status = query_slot(slot);
  EBB_CHECK(status != cudaErrorNotReady, "the time of an event that is not done");
  EBB_CUDA(status, "asking for an event");
  return context_.clock.time_s(event_of(slot));
}

}  // namespace ebb
