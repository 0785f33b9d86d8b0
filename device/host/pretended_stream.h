// The compute stream of a rehearsal: work takes its time at pretended rates, no core and no thread.
//
// Every operation begins when the one before it and what it waits for ended, so that the sum of
// many short ones is exact. When that is, is known as soon as the events before it are reached; the
// stream is ahead of the clock then, and its own events are reached with times that are yet to
// come. What is real waits for those times, and so does synchronize(). Commands run on the thread
// that submits them; those behind an event that is not reached are queued, and run on the thread
// that reaches it.
//
// Copies move nothing, as what kernels would have written is not there; over the link they take the
// time that it has for them alone. Faults are asked for under the stream's lock. Nothing is
// allocated after construction; submitting blocks while the queue is full. Thread-safety: as Stream
// says; stats() and synchronize() may be called from any thread. REQUIRES of an event that it
// records: fewer than 64 records that streams have yet to reach.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string_view>
#include <vector>

#include "device/budget.h"
#include "device/device.h"
#include "device/host/host_event.h"
#include "device/stream.h"

namespace ebb {

class PretendedStream final : public Stream, private HostEvent::Listener {
 public:
  /// REQUIRES: the device pretends; both outlive the stream.
  PretendedStream(const DeviceInfo& device, Faults& faults);
  /// Waits until nothing is queued.
  ~PretendedStream() override;

  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void call(const Cost& cost, HostFunction function) override;
  void synchronize() override;
  StreamStats stats() const override;

 private:
  struct Command {
    double submitted_s = steady_now_s();
    HostEvent* event = nullptr;  // to be reached
    const HostEvent* awaited = nullptr;
    uint64_t generation = 0;  // of either event
    std::string_view name = {};
    double seconds = 0;
    bool copies = false;
    size_t bytes = 0;  // copied
  };

  double seconds_of_copy(size_t bytes, CopyKind kind) const;
  void submit(const Command& command);
  bool is_queue_empty() const { return num_queued_ == num_run_; }
  /// Until one has to wait for an event.
  void run_queue();
  void run(const Command& command);
  void run_wait(const Command& command);
  void run_work(const Command& command);
  void reached() override;

  const DeviceInfo& device_;
  Faults& faults_;

  mutable std::mutex mutex_;
  std::condition_variable has_run_;
  std::vector<Command> queue_;  // a ring
  uint64_t num_queued_ = 0, num_run_ = 0;
  double ready_s_ = 0;  // when what has run ends
  std::exception_ptr error_;
  StreamStats stats_;
};

}  // namespace ebb
