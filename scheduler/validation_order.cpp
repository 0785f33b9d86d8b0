#include "scheduler/validation_order.h"

#include <fmt/format.h>

#include "scheduler/timeline.h"

namespace ebb::validation {
namespace {

constexpr uint32_t kMover = kNumLanes, kProgram = kNumLanes + 1;
constexpr uint32_t kLoad = static_cast<uint32_t>(Lane::Load);
constexpr uint32_t kUpdate = static_cast<uint32_t>(Lane::Update);

uint32_t strand_of(const Op& op) {
  if (!takes_no_time(op)) return static_cast<uint32_t>(op.lane);
  return op.lane == Lane::Load ? kMover : kProgram;
}

template <class Clock>
void join(Clock& clock, const Clock& other) {
  for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

}  // namespace

Order::Order(const Plan& plan) {
  strands_.reserve(plan.ops.size());
  positions_.reserve(plan.ops.size());
  starts_.reserve(plan.ops.size());
  for (uint32_t i = 0; i < plan.ops.size(); ++i) add(plan, i);
}

Order::Clock Order::clock_after(uint32_t op) const {
  Clock clock = starts_[op];
  clock[strands_[op]] = positions_[op] + 1;
  return clock;
}

void Order::add(const Plan& plan, uint32_t i) {
  const Op& op = plan.ops[i];
  const uint32_t strand = strand_of(op);
  const bool is_loop = strand == kUpdate && op.kind != OpKind::Norm;
  Clock start = is_loop ? next_update_ : lane_clocks_[strand == kLoad ? kMover : strand];
  if (op.lane != Lane::Load) join(start, lane_clocks_[kProgram]);  // who submits it has waited
  for (uint32_t k = op.first_wait; k < op.first_wait + op.num_waits; ++k) {
    const uint32_t w = k < plan.waits.size() ? plan.waits[k] : kNone;
    if (w < i) {
      join(start, clock_after(w));
    } else {
      messages_.push_back(fmt::format("op {} ({}): waits for op {}, which does not come before it",
                                      i, name_of(op.kind), w));
    }
  }
  if (strand == kLoad) {  // the mover has waited; the copy queues behind the copy before it
    lane_clocks_[kMover] = start;
    join(start, lane_clocks_[kLoad]);
  }
  strands_.push_back(strand);
  positions_.push_back(lengths_[strand]++);
  starts_.push_back(start);
  lane_clocks_[strand] = clock_after(i);
  if (strand == kUpdate) next_update_ = is_loop ? start : clock_after(i);
}

}  // namespace ebb::validation
