// Which operations of a plan are certainly done before which others start: vector clocks over its
// streams. Part of validate(). Immutable after construction; refers to the plan. Complains of waits
// that cannot be.
//
// Two threads allocate and drop, each in plan order: the copy thread for the load stream, and the
// program thread for the compute stream. Where blocks move between addresses, the thread waits for
// what an operation names; where blocks keep their addresses, the stream waits (executor.h). Only
// what is true in both cases counts. So a block is allocated after everything that its thread has
// waited for before, but not after its stream. The stream goes on after that; no other stream does.
//
// A drop is done when the operations that it waits for are done. It is before another operation if
// those are before it and if the thread of that operation has seen the drop.
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

  /// Is `a` certainly done before `b` starts? An operation is not before itself.
  bool before(OpIndex a, OpIndex b) const;
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  /// How many operations of each stream are done.
  using Clock = std::array<uint32_t, kNumStreamKinds>;
  void add(OpIndex op);
  void join_waits(Clock& clock, OpIndex op) const;
  Clock clock_after(OpIndex op) const;
  bool has_seen(OpIndex a, OpIndex b) const;
  std::span<const OpIndex> waits_of(OpIndex op) const;

  const Plan& plan_;
  std::vector<uint32_t> positions_;  // in its stream; 0 for operations that take no time
  std::vector<Clock> starts_;        // what is done when an operation starts
  std::vector<uint32_t> seen_;       // how many operations of the other thread its thread has seen
  std::array<Clock, kNumStreamKinds> stream_clocks_{};
  Clock lengths_{};
  std::array<Clock, 2> waited_{};  // [thread] what it has waited for
  std::array<uint32_t, 2>
      last_seen_{};  // [thread] how many operations of the other thread it has seen
  std::vector<std::string> messages_;
};

/// The latest operation of each stream that accessed something.
struct Accesses {
  std::array<OpIndex, kNumStreamKinds> last;
};

}  // namespace ebb::validation
