// Which operations of a plan are surely done before which others start: vector clocks over its
// lanes. Part of validate(). Immutable after construction; messages name operations whose waits or
// lanes cannot be.
//
// Two threads are strands beside the lanes: the mover, which begins the load lane's operations in
// order, gives and takes their blocks, and submits the copies without waiting for them; and the
// program, which gives and takes blocks on the compute lane, and then submits what follows on every
// lane but that. On the update lane an update begins once those before it have begun, and ends
// behind them (Stream::loop); the norm begins when they have ended.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/plan.h"

namespace ebb::validation {

inline constexpr uint32_t kNumStrands = kNumLanes + 2;

class Order {
 public:
  explicit Order(const Plan& plan);

  /// Is `a` done before `b` starts? An operation is not before itself.
  bool before(uint32_t a, uint32_t b) const { return starts_[b][strands_[a]] > positions_[a]; }
  uint32_t strand(uint32_t op) const { return strands_[op]; }
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  /// How many operations of each strand are done.
  using Clock = std::array<uint32_t, kNumStrands>;
  Clock clock_after(uint32_t op) const;
  void add(const Plan& plan, uint32_t op);

  std::vector<uint32_t> strands_;
  std::vector<uint32_t> positions_;  // in the strand
  std::vector<Clock> starts_;        // what is done when the operation starts
  std::array<Clock, kNumStrands> lane_clocks_{};
  Clock next_update_{};  // what is done when the next update could begin, but for its own waits
  Clock lengths_{};
  std::vector<std::string> messages_;
};

/// The latest operation of each strand that did something.
struct Accesses {
  std::array<uint32_t, kNumStrands> last{kNone, kNone, kNone, kNone, kNone, kNone};
};

}  // namespace ebb::validation
