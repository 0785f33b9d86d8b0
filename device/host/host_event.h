// An event of the host backend. The threads of streams record the event and wait for it.
//
// Thread-safety: every method may be called from any thread. An event must outlive all operations
// that use it.
#pragma once

#include <cstdint>
#include <exception>

#include "device/stream.h"
#include "system/clock.h"
#include "system/record_counter.h"

namespace ebb {

class HostEvent final : public Event {
 public:
  void signal() override;
  void synchronize() const override;
  bool done() const override;
  double time_s() const override;

  // Called by streams; see RecordCounter.
  uint64_t submit_record() { return records_.submit(); }
  /// The number of the record for which a wait that is submitted now waits. Throws LogicError if
  /// the event was never recorded.
  uint64_t submit_wait() const;
  void reach(uint64_t record, std::exception_ptr error, double time_s = steady_now_s()) {
    records_.reach(record, std::move(error), time_s);
  }
  RecordCounter::Reached wait(uint64_t record) const { return records_.wait(record); }

 private:
  RecordCounter records_;
};

/// Throw LogicError if the event belongs to another kind of device.
HostEvent& as_host_event(Event& event);
const HostEvent& as_host_event(const Event& event);

}  // namespace ebb
