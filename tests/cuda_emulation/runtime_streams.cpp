// Streams and events of the emulated runtime: those of the host backend, so that ThreadSanitizer
// sees the orders that CUDA promises and no other.
#include <exception>
#include <utility>

#include "device/errors.h"
#include "device/host/host_stream.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/stream_queue.h"

using namespace ebb::emulation;

namespace {

ebb::Faults& no_faults() {
  static ebb::Faults none({});
  return none;
}

/// Work that throws is a fault on the device, not on the stream: later work is dropped everywhere.
void run(std::function<void()>* work) noexcept {
  try {
    if (!is_lost()) (*work)();
  } catch (const std::exception& error) {
    lose_device(error.what());
  } catch (...) {
    lose_device("something that is no std::exception was thrown");
  }
  delete work;
}

}  // namespace

struct CUstream_st {
  ebb::HostStream queue{{.faults = &no_faults(), .name = "emulated GPU"}};
};

struct CUevent_st {
  ebb::HostEvent event = {};
  bool has_time = true;
};

void ebb::emulation::enqueue(cudaStream_t stream, std::function<void()> work) {
  EBB_CHECK(stream != nullptr, "there is no default stream");
  auto* owned = new std::function<void()>(std::move(work));
  stream->queue.call({}, [owned] { run(owned); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  EBB_CHECK(flags == cudaStreamNonBlocking, "a stream that waits for the default stream");
  EBB_CHECK(priority <= 0 && priority >= -5, "a priority out of range");
  if (is_lost()) return finish();
  *stream = new CUstream_st;
  return finish();
}

/// Waits for what is queued, as a later use of its memory would.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return finish();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->queue.synchronize();
  return finish();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  EBB_CHECK(flags == 0, "other flags");
  if (is_lost()) return finish();
  stream->queue.wait(event->event);  // throws where it was never recorded
  return finish();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (is_lost()) return finish();
  *event = new CUevent_st;
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  return finish();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return finish();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EBB_CHECK(stream != nullptr, "there is no default stream");
  if (is_lost()) return finish();
  stream->queue.record(event->event);
  return finish();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (is_lost()) return finish();
  event->event.synchronize();  // throws where it was never recorded
  return finish();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  (void)event->event.latest();  // throws where it was never recorded
  if (is_lost()) return finish();
  return event->event.done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  EBB_CHECK(begin->has_time && end->has_time, "the time of an event that keeps none");
  if (!begin->event.done() || !end->event.done()) return finish(cudaErrorNotReady);
  *milliseconds = static_cast<float>(1e3 * (end->event.time_s() - begin->event.time_s()));
  return finish();
}
