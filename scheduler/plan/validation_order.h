// Which operations of a plan are surely done before which others start: vector clocks over its
// lanes. Part of validate(). Immutable after construction, and refers to the plan; messages name
// operations whose waits or lanes cannot be.
//
// Blocks are given and taken by two threads, each in order: the mover, for the load lane, and the
// program, for the compute lane. What they wait for, either the thread has waited for (where blocks
// move) or the lane's stream (where they keep their addresses: executor.h); only what is true both
// ways is taken to be so. So a block is given after all that its thread waited for before, not
// after its lane; the lane goes on after that, no other lane does. A chunk is dropped after what
// the drop itself waits for, which is all that others wait for who wait for it: it is before
// another operation where that comes after those waits, and is submitted once the drop is noted.
// On the update lane an update begins once those before it have begun, and ends behind them
// (Stream::loop); the norm begins when they have ended.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scheduler/plan/plan.h"

namespace ebb::validation {

class Order {
 public:
  explicit Order(const Plan& plan);

  /// Is `a` done before `b` starts? An operation is not before itself.
  bool before(uint32_t a, uint32_t b) const;
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  /// How many operations of each lane are done.
  using Clock = std::array<uint32_t, kNumStreamKinds>;
  void add(uint32_t op);
  void join_waits(Clock& clock, uint32_t op) const;
  Clock clock_after(uint32_t op) const;
  bool is_noted(uint32_t a, uint32_t b) const;
  std::span<const uint32_t> waits_of(uint32_t op) const;

  const Plan& plan_;
  std::vector<uint32_t> positions_;  // in the lane; of what takes no time 0
  std::vector<Clock> starts_;        // what is done when the operation starts
  std::vector<uint32_t> noted_;      // how many operations the other thread has passed by then
  std::array<Clock, kNumStreamKinds> stream_clocks_{};
  Clock lengths_{};
  std::array<Clock, 2> given_{};      // [thread] what its blocks have waited for
  std::array<uint32_t, 2> passed_{};  // [thread] the other's operations, by what it waited for
  std::vector<std::string> messages_;
};

/// The latest operation of each lane that did something.
struct Accesses {
  std::array<uint32_t, kNumStreamKinds> last{kNone, kNone, kNone, kNone};
};

}  // namespace ebb::validation
