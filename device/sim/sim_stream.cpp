#include "device/sim/sim_stream.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {

bool SimEvent::done() const {
  std::lock_guard lock(mutex_);
  return recorded_;
}

void SimEvent::reach(double time_s) {
  std::lock_guard lock(mutex_);
  recorded_ = true;
  time_s_ = time_s;
}

double SimEvent::reached_time_s() const {
  std::lock_guard lock(mutex_);
  EBB_CHECK(recorded_, "waiting for an event that was never recorded");
  return time_s_;
}

void SimStream::record(Event& event) {
  auto* sim_event = dynamic_cast<SimEvent*>(&event);
  EBB_CHECK(sim_event != nullptr, "the event belongs to another kind of device");
  std::lock_guard lock(mutex_);
  sim_event->reach(time_s_);
}

void SimStream::wait(const Event& event) {
  const auto* sim_event = dynamic_cast<const SimEvent*>(&event);
  EBB_CHECK(sim_event != nullptr, "the event belongs to another kind of device");
  const double reached_s = sim_event->reached_time_s();
  std::lock_guard lock(mutex_);
  stats_.waiting_s += std::max(0.0, reached_s - time_s_);
  time_s_ = std::max(time_s_, reached_s);
}

void SimStream::copy(void*, const void*, size_t bytes, CopyKind kind) {
  run_for(device_.copy_duration_s(bytes, kind), bytes);
}

void SimStream::submit(const Cost& cost, HostFunction) { run_for(device_.add_call(cost), 0); }

void SimStream::run_for(double duration_s, size_t copied_bytes) {
  std::lock_guard lock(mutex_);
  time_s_ += duration_s;
  stats_.busy_s += duration_s;
  stats_.copied_bytes += copied_bytes;
  ++stats_.num_operations;
  device_.advance_clock(time_s_);
}

StreamStats SimStream::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace ebb
