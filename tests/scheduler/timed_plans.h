// Plans with the times of their operations: written operation by operation, or random and
// simulated.
#pragma once

#include <initializer_list>
#include <vector>

#include "scheduler/plan/simulate.h"
#include "scheduler/plan/timeline.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb::test {

struct WrittenOp {
  Op op;
  OpTime time;
  std::vector<int> waits = {};  ///< the positions of the operations that it waits for
};

struct WrittenPlan {
  Plan plan;
  std::vector<OpTime> times;

  WrittenPlan(std::initializer_list<WrittenOp> ops) {
    for (auto [op, time, waits] : ops) {
      op.first_wait = static_cast<uint32_t>(plan.waits.size());
      op.num_waits = static_cast<uint32_t>(waits.size());
      for (const int w : waits) plan.waits.push_back(OpIndex(w));
      plan.ops.push_back(op);
      times.push_back(time);
    }
  }
};

inline constexpr Op kLoad{
    .kind = OpKind::Move, .stream = StreamKind::Load, .from = Tier::Host, .to = Tier::Device};
inline constexpr Op kStore{
    .kind = OpKind::Move, .stream = StreamKind::Store, .from = Tier::Device, .to = Tier::Host};
inline constexpr Op kAllocate{.kind = OpKind::Move, .stream = StreamKind::Load, .to = Tier::Device};
inline constexpr Op kDrop{.kind = OpKind::Drop, .stream = StreamKind::Load};
inline constexpr Op kRun{.kind = OpKind::Call};
inline constexpr Op kUpdate{.kind = OpKind::Update, .stream = StreamKind::Update};
inline constexpr Op kNorm{.kind = OpKind::Norm, .stream = StreamKind::Update};

/// A machine on which every stream is sometimes the slowest.
inline constexpr Machine kSlowMachine{.flops_per_s = 3e9,
                                      .device_bytes_per_s = 2e9,
                                      .load_bytes_per_s = 1e9,
                                      .store_bytes_per_s = 7e8,
                                      .update_bytes_per_s = 2e9};

struct SimulatedCase {
  Case planned;
  Plan plan;
  Simulation simulation;
};

/// A case with a random plan, on that machine.
inline SimulatedCase simulate_any_case(uint64_t seed) {
  SimulatedCase s{.planned = make_any_case(seed), .plan = {}, .simulation = {}};
  s.plan = plan_of_any_case(s.planned, seed);
  s.simulation = simulate(s.plan, s.planned.trace, s.planned.layout, kSlowMachine);
  return s;
}

}  // namespace ebb::test
