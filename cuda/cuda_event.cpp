#include "cuda/cuda_event.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "cuda/handles.h"
#include "device/errors.h"
#include "system/clock.h"
#include "system/tsan.h"

namespace ebb {
namespace {

/// A waiting host thread sleeps so long before it asks again whether a record is reached.
/// cudaEventSynchronize() would occupy a core, except for events with cudaEventBlockingSync, of
/// which only 56 records fit into a queue.
constexpr std::chrono::microseconds kPoll{20};

}  // namespace

CudaEvent::CudaEvent(CudaContext& context)
    : context_(context), flag_((context.enter(), context.flags.take())) {
  try {
    host_records_ = std::make_unique<RecordCounter>(flag_);
    device_records_.push_back({.event = make_event()});
  } catch (...) {
    context_.flags.give_back(flag_);
    throw;
  }
}

CudaEvent::~CudaEvent() {
  host_records_.reset();  // after this, no host thread writes the flag
  (void)context_.try_enter();
  context_.flags.give_back(flag_);
}

// ---- Records

/// Returns a slot for whose record no thread waits. Makes a new slot only if threads wait for all
/// records.
uint32_t CudaEvent::take_free_record() {
  {
    TsanHiddenLock lock(mutex_);
    if (device_records_[record_].num_waits == 0) return record_;
    for (uint32_t i = 0; i < device_records_.size(); ++i) {
      if (device_records_[i].num_waits == 0) return i;
    }
  }
  OwnedEvent event = make_event();
  TsanHiddenLock lock(mutex_);
  device_records_.push_back({.event = std::move(event)});
  return static_cast<uint32_t>(device_records_.size() - 1);
}

void CudaEvent::record_on(cudaStream_t stream, const StreamClock& point) {
  context_.enter();  // a CUDA event belongs to the current device of the thread
  const uint32_t record = take_free_record();
  EBB_CUDA(cudaEventRecord(event_of(record), stream), "recording an event");
  TsanHiddenLock lock(mutex_);
  device_records_[record].point = point;
  where_ = Where::Device;
  record_ = record;
  point_ = point;
}

uint64_t CudaEvent::submit_record(const StreamClock& point) {
  const uint64_t record = host_records_->submit();
  TsanHiddenLock lock(mutex_);
  where_ = Where::Host;
  point_ = point;
  return record;
}

void CudaEvent::signal() { reach(submit_record({}), nullptr); }

// ---- Waits

uint32_t CudaEvent::hold_latest() const {
  TsanHiddenLock lock(mutex_);
  if (where_ != Where::Device) return kNoRecord;
  ++device_records_[record_].num_waits;
  return record_;
}

void CudaEvent::let_go(uint32_t record) const {
  TsanHiddenLock lock(mutex_);
  --device_records_[record].num_waits;
}

cudaEvent_t CudaEvent::event_of(uint32_t record) const {
  TsanHiddenLock lock(mutex_);
  return device_records_[record].event.get();
}

StreamClock CudaEvent::point() const {
  TsanHiddenLock lock(mutex_);
  return point_;
}

StreamClock CudaEvent::make_wait(cudaStream_t stream) const {
  const uint32_t record = hold_latest();
  if (record != kNoRecord) {
    const cudaError_t status = cudaStreamWaitEvent(stream, event_of(record), 0);
    let_go(record);
    if (status != cudaSuccess) {
      throw_cuda_error(status, "cudaStreamWaitEvent", "making a stream wait for an event", __FILE__,
                       __LINE__);
    }
  } else if (const uint64_t record = newest_host_record(); context_.blocks_submitting_thread) {
    (void)host_records_->wait(record);  // point() reports failures
  } else if (!host_records_->is_reached(record)) {
    const CUresult status = context_.driver.stream_wait_value32(
        stream, reinterpret_cast<CUdeviceptr>(flag_), static_cast<uint32_t>(record),
        CU_STREAM_WAIT_VALUE_GEQ);
    if (status != CUDA_SUCCESS) {
      throw_driver_error(context_.driver, status, "cuStreamWaitValue32",
                         "making a stream wait for a host thread",
                         "is this GPU older than compute capability 8.0? use `device` host");
    }
  }
  return point();
}

uint64_t CudaEvent::submit_wait() const {
  const uint32_t record = hold_latest();
  return record == kNoRecord ? newest_host_record() : kOnDevice | record;
}

uint64_t CudaEvent::newest_host_record() const {
  const uint64_t newest = host_records_->newest();
  EBB_CHECK(newest > 0, "waiting for an event that was never recorded");
  return newest;
}

CudaEvent::Reached CudaEvent::await_record(uint32_t record) const {
  Reached reached;
  try {
    context_.enter();
    const cudaEvent_t event = event_of(record);
    cudaError_t status = query(event);
    for (; status == cudaErrorNotReady; status = query(event)) std::this_thread::sleep_for(kPoll);
    if (status != cudaSuccess) {
      throw_cuda_error(status, "cudaEventQuery", "waiting for an event", __FILE__, __LINE__);
    }
  } catch (...) {
    reached.error = std::current_exception();
  }
  reached.time_s = steady_now_s();
  return reached;
}

CudaEvent::Reached CudaEvent::await(uint64_t token) const {
  if ((token & kOnDevice) == 0) return host_records_->wait(token);
  const auto record = static_cast<uint32_t>(token & ~kOnDevice);
  Reached reached = await_record(record);
  StreamClock point;
  {
    TsanHiddenLock lock(mutex_);
    point = device_records_[record].point;
  }
  if (!reached.error) reached.error = context_.failures.error_before(point);
  let_go(record);
  return reached;
}

CudaEvent::Reached CudaEvent::await_end(uint64_t token) const {
  if ((token & kOnDevice) == 0) return {.time_s = host_records_->wait(token).time_s, .error = {}};
  const auto record = static_cast<uint32_t>(token & ~kOnDevice);
  Reached reached = await_record(record);
  let_go(record);
  return reached;
}

void CudaEvent::drop_wait(uint64_t token) const {
  if ((token & kOnDevice) != 0) let_go(static_cast<uint32_t>(token & ~kOnDevice));
}

void CudaEvent::synchronize() const {
  const Reached reached = await(submit_wait());
  if (reached.error) std::rethrow_exception(reached.error);
  if (const auto error = context_.failures.error_before(point())) std::rethrow_exception(error);
}

cudaError_t CudaEvent::query_record(uint32_t record) const {
  const cudaError_t status = context_.try_enter();
  return status == cudaSuccess ? query(event_of(record)) : status;
}

bool CudaEvent::done() const {
  const uint32_t record = hold_latest();
  if (record == kNoRecord) {
    const uint64_t newest = host_records_->newest();
    return newest > 0 && host_records_->is_reached(newest);
  }
  const cudaError_t status = query_record(record);
  let_go(record);
  return status != cudaErrorNotReady;  // on a lost device nothing runs any more
}

double CudaEvent::time_s() const {
  const uint32_t record = hold_latest();
  if (record == kNoRecord) {
    const std::optional<double> time_s = host_records_->newest_time_s();
    EBB_CHECK(time_s.has_value(), "the time of an event that is not done");
    return *time_s;
  }
  // Reserves the slot while it is read: otherwise another record of this event could reuse it.
  const struct Held {
    const CudaEvent& event;
    uint32_t record;
    ~Held() { event.let_go(record); }
  } held{*this, record};
  const cudaError_t status = query_record(record);
  EBB_CHECK(status != cudaErrorNotReady, "the time of an event that is not done");
  if (status != cudaSuccess) {
    throw_cuda_error(status, "cudaEventQuery", "asking for an event", __FILE__, __LINE__);
  }
  return context_.clock.time_s(event_of(record));
}

}  // namespace ebb
