// Is the last gradient of a step home? From then on its norm can be known, and nothing has to be
// done in the hope that it will not clip.
//
// Thread-safety: begin() and submitted() from one thread, is_home() from any; none during begin().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "device/stream.h"
#include "scheduler/plan/plan.h"

namespace ebb {

class LastGradient {
 public:
  /// Events are used again in every step: that of the step before says nothing.
  void begin(const Plan& plan) {
    event_ = nullptr;
    const auto norm = std::ranges::find(plan.ops, OpKind::Norm, &Op::kind);
    op_ = norm == plan.ops.end() || norm->num_waits == 0 ? kNone : plan.waits_of(*norm).back();
  }
  /// Operation `op` will be followed by `event`, which is recorded.
  void submitted(uint32_t op, const Event& event) {
    if (op == op_) event_ = &event;
  }
  bool is_home() const {
    const Event* const event = event_;
    return event != nullptr && event->done();
  }

 private:
  uint32_t op_ = kNone;  // that brings it home
  std::atomic<const Event*> event_ = nullptr;
};

}  // namespace ebb
