// A stream of the host backend: a thread that runs one command after the other.
//
// A stream with emulated compute rates runs no function: a call takes the time that it would take
// at these rates, during which the thread sleeps. Copies over the link are real on every stream.
//
// The stream keeps the time at which its next command could have begun on the emulated device. A
// thread that wakes up late from its sleep, or a copy that waits for a busy core, does not move
// that time, so that the delays of this machine do not add up in an emulated step.
//
// Nothing is allocated after construction. A submission blocks while the queue is full. The
// destructor waits until all queued commands have run. Thread-safety: as Stream; stats() and
// synchronize() may be called from any thread but the stream's own.
#pragma once

#include <exception>
#include <mutex>
#include <optional>
#include <string_view>

#include "device/budget.h"
#include "device/host/host_link.h"
#include "device/stream.h"
#include "system/record_counter.h"
#include "system/thread_queue.h"

namespace ebb {

/// The parts of the device that a stream uses. They must outlive the stream.
struct HostStreamOptions {
  Link* load = nullptr;
  Link* store = nullptr;
  Faults* faults = nullptr;
  const char* name = "stream";  ///< of the thread; static storage, at most 15 characters
  std::optional<ComputeRates> emulated_rates = {};
  size_t queue_capacity = kQueueCapacity;  ///< operations that can be in the queue
};

class HostStream final : public Stream {
 public:
  explicit HostStream(const HostStreamOptions& options)
      : options_(options), queue_(options.name, options.queue_capacity) {}

  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void submit(const Cost& cost, HostFunction function) override;
  void synchronize() override;
  StreamStats stats() const override;

 private:
  using Task = InlineFunction<void(), sizeof(HostFunction) + 64>;

  // Called on the submitting thread.
  void enqueue(auto command);
  // Called on the stream's thread.
  void run_wait(RecordCounter::Reached reached, double begin_s);
  template <class Work>
  void run_work(const Work& work);
  void run_copy(void* to, const void* from, size_t bytes, CopyKind kind);
  void emulate(double seconds);
  void fail(std::exception_ptr error);

  const HostStreamOptions options_;
  // Used only by the stream's thread: the time at which the next command could begin, and the time
  // at which the last copy was done, which may be later.
  double ready_s_ = 0, done_s_ = 0;

  mutable std::mutex mutex_;
  std::exception_ptr error_;  // written by the stream's thread, which reads it without the lock
  StreamStats stats_;

  ThreadQueue<Task> queue_;  // last: its thread uses all of the above
};

}  // namespace ebb
