#include "device/host/host_event.h"

#include <utility>

#include "device/errors.h"

namespace ebb {

uint64_t HostEvent::submit_wait() const {
  const uint64_t newest = records_.newest();
  EBB_CHECK(newest > 0, "waiting for an event that was never recorded");
  return newest;
}

void HostEvent::signal() { reach(submit_record(), nullptr); }

void HostEvent::synchronize() const {
  const RecordCounter::Reached reached = wait(submit_wait());
  if (reached.error) std::rethrow_exception(reached.error);
}

bool HostEvent::done() const {
  const uint64_t newest = records_.newest();
  return newest > 0 && records_.is_reached(newest);
}

double HostEvent::time_s() const {
  const std::optional<double> time_s = records_.newest_time_s();
  EBB_CHECK(time_s.has_value(), "the time of an event that is not done");
  return *time_s;
}

const HostEvent& as_host_event(const Event& event) {
  const auto* host_event = dynamic_cast<const HostEvent*>(&event);
  EBB_CHECK(host_event != nullptr, "the event belongs to another kind of device");
  return *host_event;
}

HostEvent& as_host_event(Event& event) {
  return const_cast<HostEvent&>(as_host_event(std::as_const(event)));
}

}  // namespace ebb
