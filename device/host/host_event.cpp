#include "device/host/host_event.h"

#include <utility>

#include "device/errors.h"
#include "device/host/quiet_lock.h"

namespace ebb {

uint64_t HostEvent::submit_record() {
  QuietLock lock(mutex_);
  return ++submitted_;
}

uint64_t HostEvent::latest() const {
  QuietLock lock(mutex_);
  EBB_CHECK(submitted_ > 0, "waiting for an event that was never recorded");
  return submitted_;
}

uint64_t HostEvent::all_reached() const {
  QuietLock lock(mutex_);
  return all_reached_;
}

bool HostEvent::is_reached(uint64_t generation) const {
  if (generation <= all_reached_) return true;
  const uint64_t ahead = generation - all_reached_ - 1;
  return ahead < kWindow && ((reached_after_ >> ahead) & 1) != 0;
}

// The waiters are told under the lock: one of them may destroy the event as soon as it has seen its
// generation. Listeners are told behind it, as they go on to other events.
void HostEvent::reach(uint64_t generation, std::exception_ptr error, double time_s) {
  give_order(this);
  Listener* told = nullptr;
  {
    QuietLock lock(mutex_);
    lock.wait(reached_one_, [&] { return generation - all_reached_ - 1 < kWindow; });
    reached_after_ |= uint64_t{1} << (generation - all_reached_ - 1);
    while ((reached_after_ & 1) != 0) ++all_reached_, reached_after_ >>= 1;
    if (generation > newest_reached_) newest_reached_ = generation, time_s_ = time_s;
    if (error && !error_) error_ = std::move(error);
    note_reached(all_reached_);
    reached_one_.notify_all();
    told = take_listeners();
  }
  while (told != nullptr) std::exchange(told, told->next_)->reached();
}

HostEvent::Listener* HostEvent::take_listeners() {
  Listener* taken = nullptr;
  for (Listener** at = &listeners_; *at != nullptr;) {
    Listener* const listener = *at;
    if (is_reached(listener->generation_)) {
      *at = std::exchange(listener->next_, taken);
      taken = listener;
    } else {
      at = &listener->next_;
    }
  }
  return taken;
}

bool HostEvent::tell(uint64_t generation, Listener& listener) const {
  QuietLock lock(mutex_);
  if (is_reached(generation)) return false;
  listener.generation_ = generation;
  listener.next_ = std::exchange(listeners_, &listener);
  return true;
}

HostEvent::Reached HostEvent::await(uint64_t generation) const {
  Reached reached;
  {
    QuietLock lock(mutex_);
    lock.wait(reached_one_, [&] { return is_reached(generation); });
    reached = {time_s_, error_};
  }
  take_order(this);
  return reached;
}

bool HostEvent::is_over(uint64_t generation) const {
  QuietLock lock(mutex_);
  return is_reached(generation) && time_s_ <= steady_now_s();
}

void HostEvent::signal() { reach(submit_record(), nullptr); }

void HostEvent::synchronize() const {
  const Reached reached = await(latest());
  sleep_until(reached.time_s);
  if (reached.error) std::rethrow_exception(reached.error);
}

bool HostEvent::done() const {
  bool reached = false;
  {
    QuietLock lock(mutex_);
    reached = submitted_ > 0 && is_reached(submitted_) && time_s_ <= steady_now_s();
  }
  if (reached) take_order(this);
  return reached;
}

double HostEvent::time_s() const {
  QuietLock lock(mutex_);
  EBB_CHECK(submitted_ > 0 && is_reached(submitted_), "the time of an event that is not done");
  return time_s_;
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
