// Streams and events of the emulated runtime. They use those of the host backend, so that
// ThreadSanitizer sees only the order that CUDA guarantees.
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/errors.h"
#include "device/host/host_event.h"
#include "device/host/host_stream.h"
#include "system/tsan.h"
#include "tests/cuda_emulation/code_loading.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/launch_queue.h"
#include "tests/cuda_emulation/stream_queue.h"

using namespace ebb::emulation;

namespace {

ebb::Faults& no_faults() {
  static ebb::Faults none({});
  return none;
}

/// Runs work. An exception is a fault of the device and not of the stream: later work on all
/// streams is dropped.
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
  int device = current_device();
  LaunchQueue room = {};
  // Last: its thread uses the room.
  ebb::HostStream queue{{.faults = &no_faults(), .name = "emulated GPU"}};

  /// Submits one entry. `work` does not throw. May block while the queue is full.
  void submit(Entry entry, auto work) {
    const DriverCall call(Access::Submit);
    room.enter(entry);
    queue.submit({}, [this, entry, work] {
      work();
      room.leave(entry);
    });
  }
};

struct CUevent_st {
  int device = current_device();
  ebb::HostEvent event = {};
  bool has_time = true;
  bool blocks = false;  // cudaEventBlockingSync
  bool is_destroyed = false;
};

namespace {

/// Destroyed events. A program may destroy an event that streams have not reached yet, so the
/// memory of events is freed with the last stream.
class Graveyard {
 public:
  void add(cudaEvent_t event) {
    ebb::TsanHiddenLock lock(mutex_);
    EBB_CHECK(!event->is_destroyed, "an event is destroyed twice");
    event->is_destroyed = true;
    events_.emplace_back(event);
  }
  void clear_without_streams() {
    ebb::TsanHiddenLock lock(mutex_);
    if (live().num_streams == 0) events_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
};
Graveyard& graveyard() {
  static Graveyard one;
  return one;
}

ebb::HostEvent& used(cudaEvent_t event) {
  EBB_CHECK(!event->is_destroyed, "an event is used that was destroyed");
  return event->event;
}

}  // namespace

bool ebb::emulation::is_on_current_device(cudaStream_t stream) {
  return stream == nullptr || stream->device == current_device();
}

void ebb::emulation::enqueue(cudaStream_t stream, std::function<void()> work) {
  EBB_CHECK(stream != nullptr, "there is no default stream");
  auto* owned = new std::function<void()>(std::move(work));
  stream->submit(Entry::Work, [owned] { run(owned); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  EBB_CHECK(flags == cudaStreamNonBlocking, "a stream that waits for the default stream");
  EBB_CHECK(priority <= 0 && priority >= -5, "a priority out of range");
  if (is_lost()) return finish();
  if (is_refused("cudaStreamCreateWithPriority")) return finish(cudaErrorUnknown);
  *stream = new CUstream_st;
  count_stream(1);
  return finish();
}

/// Waits for the queued work, because the program may free the memory that it uses.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  make_context();
  delete stream;
  count_stream(-1);
  graveyard().clear_without_streams();
  if (live().num_streams == 0) unload_code();
  return finish();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  // Never fails, because programs call it before they free memory.
  make_context();
  stream->queue.synchronize();
  return finish();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  EBB_CHECK(flags == 0, "other flags");
  if (is_lost()) return finish();
  if (is_refused("cudaStreamWaitEvent")) return finish(cudaErrorUnknown);
  const ebb::HostEvent& awaited = used(event);
  const uint64_t record = awaited.submit_wait();  // throws where it was never recorded
  stream->submit(Entry::Work, [&awaited, record] { (void)awaited.wait(record); });
  return finish();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (is_lost()) return finish();
  if (is_refused("cudaEventCreateWithFlags")) return finish(cudaErrorUnknown);
  const DriverCall call(Access::CreateEvent);
  *event = new CUevent_st;
  count_event(1);
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  (*event)->blocks = (flags & cudaEventBlockingSync) != 0;
  return finish();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  make_context();
  graveyard().add(event);
  count_event(-1);
  return finish();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EBB_CHECK(stream != nullptr, "there is no default stream");
  if (is_lost()) return finish();
  if (stream->device != event->device) return finish(cudaErrorInvalidResourceHandle);
  if (is_refused("cudaEventRecord")) return finish(cudaErrorUnknown);
  ebb::HostEvent& recorded = used(event);
  const uint64_t record = recorded.submit_record();
  const Entry entry = event->blocks ? Entry::BlockingRecord : Entry::Work;
  stream->submit(entry, [&recorded, record] { recorded.reach(record, nullptr); });
  return finish();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (is_lost()) return finish();
  if (is_refused("cudaEventSynchronize")) return finish(cudaErrorUnknown);
  { const DriverCall call(Access::Ask); }
  used(event).synchronize();  // throws where it was never recorded
  return finish();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  (void)used(event).submit_wait();  // throws where it was never recorded
  if (is_lost()) return finish();
  if (is_refused("cudaEventQuery")) return finish(cudaErrorUnknown);
  const DriverCall call(Access::Ask);
  // Not ready is no failure, but as in CUDA it becomes the last error.
  return event->event.done() ? cudaSuccess : set_last_error(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  EBB_CHECK(begin->has_time && end->has_time, "the time of an event that keeps none");
  if (is_refused("cudaEventElapsedTime")) return finish(cudaErrorUnknown);
  if (begin->device != end->device) return finish(cudaErrorInvalidResourceHandle);
  if (!begin->event.done() || !end->event.done()) return finish(cudaErrorNotReady);
  *milliseconds = static_cast<float>(1e3 * (end->event.time_s() - begin->event.time_s()));
  return finish();
}
