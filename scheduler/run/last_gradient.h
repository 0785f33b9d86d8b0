// Says whether the last partial norms of a step are in host memory. From then on the gradient norm
// can be computed, and speculative updates have no advantage over deferred updates.
//
// Thread-safety: one thread calls begin() and submitted(). Any thread may call has_all_norms(), but
// not during begin().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "device/stream.h"
#include "scheduler/plan/plan.h"

namespace ebb {

class LastGradient {
 public:
  /// Forgets the event of the step before, because every step records the same events again.
  void begin(const Plan& plan) {
    event_ = nullptr;
    const auto norm = std::ranges::find(plan.ops, OpKind::Norm, &Op::kind);
    op_ = norm == plan.ops.end() || norm->num_waits == 0 ? kNone : plan.waits_of(*norm).back();
  }
  /// Operation `op` has been submitted, and `event` has been recorded after it.
  void submitted(OpIndex op, const Event& event) {
    if (op == op_) event_ = &event;
  }
  bool has_all_norms() const {
    const Event* const event = event_;
    return event != nullptr && event->done();
  }

 private:
  OpIndex op_ = kNone;  // the last operation that the norm waits for
  std::atomic<const Event*> event_ = nullptr;
};

}  // namespace ebb
