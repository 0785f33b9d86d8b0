#include "device/host/pretended_stream.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr size_t kQueueSlots = 4096;

}  // namespace

PretendedStream::PretendedStream(const DeviceInfo& device, Faults& faults)
    : device_(device), faults_(faults), queue_(kQueueSlots) {}

PretendedStream::~PretendedStream() {
  std::unique_lock lock(mutex_);
  has_run_.wait(lock, [&] { return is_queue_empty(); });
}

void PretendedStream::record(Event& event) {
  HostEvent& recorded = as_host_event(event);
  submit({.event = &recorded, .generation = recorded.submit_record()});
}

void PretendedStream::wait(const Event& event) {
  const HostEvent& awaited = as_host_event(event);
  submit({.awaited = &awaited, .generation = awaited.submit_wait()});
}

void PretendedStream::copy(void*, const void*, size_t bytes, CopyKind kind) {
  submit({.seconds = seconds_of_copy(bytes, kind), .copies = true, .bytes = bytes});
}

double PretendedStream::seconds_of_copy(size_t bytes, CopyKind kind) const {
  const auto count = static_cast<double>(bytes);
  if (kind == CopyKind::Within) return device_.pretended->seconds({.bytes = 2 * count});
  const double rate = kind == CopyKind::Load ? device_.load_bytes_per_s : device_.store_bytes_per_s;
  return rate > 0 ? count / rate : 0;
}

void PretendedStream::call(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  submit({.name = cost.name, .seconds = device_.pretended->seconds(cost)});
}

void PretendedStream::submit(const Command& command) {
  std::unique_lock lock(mutex_);
  has_run_.wait(lock, [&] { return num_queued_ - num_run_ < kQueueSlots; });
  const bool is_blocked = !is_queue_empty();
  queue_[num_queued_++ % kQueueSlots] = command;
  if (!is_blocked) run_queue();
}

void PretendedStream::run_queue() {
  for (; !is_queue_empty(); ++num_run_) {
    const Command& command = queue_[num_run_ % kQueueSlots];
    const bool waits = command.awaited != nullptr && !error_;
    if (waits && command.awaited->tell(command.generation, *this)) break;
    run(command);
  }
}

void PretendedStream::reached() {
  std::lock_guard lock(mutex_);
  run_queue();
  has_run_.notify_all();
}

void PretendedStream::run(const Command& command) {
  ready_s_ = std::max(ready_s_, command.submitted_s);
  if (command.event != nullptr) return command.event->reach(command.generation, error_, ready_s_);
  if (error_) return;  // dropped
  if (command.awaited != nullptr) return run_wait(command);
  run_work(command);
}

void PretendedStream::run_wait(const Command& command) {
  const HostEvent::Reached reached = command.awaited->await(command.generation);
  stats_.waiting_s += std::max(0.0, reached.time_s - ready_s_);
  ready_s_ = std::max(ready_s_, reached.time_s);
  error_ = reached.error;
}

void PretendedStream::run_work(const Command& command) {
  try {
    if (command.copies) {
      faults_.check_copy(command.bytes);
    } else {
      faults_.check_launch(command.name);
    }
    ready_s_ += command.seconds;
    stats_.copied_bytes += command.bytes;
  } catch (...) {
    error_ = std::current_exception();
  }
  stats_.busy_s += command.seconds;
  ++stats_.num_operations;
}

void PretendedStream::synchronize() {
  double ready_s = 0;
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    const uint64_t submitted = num_queued_;
    has_run_.wait(lock, [&] { return num_run_ >= submitted; });
    ready_s = ready_s_;
    error = error_;
  }
  sleep_until(ready_s);
  if (error) std::rethrow_exception(error);
}

StreamStats PretendedStream::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace ebb
