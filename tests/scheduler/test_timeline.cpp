// The timeline of a plan is computed from the times at which operations end. The tests compare it
// with the simulation, which also knows when they begin.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scheduler/plan/simulate.h"
#include "scheduler/plan/timeline.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb {
namespace {

constexpr Machine kMachine{.flops_per_s = 3e9,
                           .device_bytes_per_s = 2e9,
                           .load_bytes_per_s = 1e9,
                           .store_bytes_per_s = 7e8,
                           .update_bytes_per_s = 2e9};

struct Simulated {
  Plan plan;
  Simulation simulation;
};

Simulated simulate_case(uint64_t seed) {
  const test::Case c = test::make_any_case(seed);
  Simulated s{test::plan_case(c, test::smallest_blocks(c) + seed % 4, seed % 2, seed % 3 == 0).plan,
              {}};
  s.simulation = simulate(s.plan, c.trace, c.layout, kMachine);
  return s;
}

std::vector<OpTime> times_from_ends(const Simulated& s) {
  std::vector<OpTime> times(s.plan.ops.size());
  fill_times(
      s.plan, [&s](uint32_t i) { return s.simulation.ops[i].end_s; }, times);
  return times;
}

TEST(Timeline, OperationsBeginAsInTheSimulation) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Simulated s = simulate_case(seed);
    const std::vector<OpTime> times = times_from_ends(s);
    for (size_t i = 0; i < times.size(); ++i) {
      ASSERT_NEAR(times[i].start_s, s.simulation.ops[i].start_s, 1e-12) << seed << ' ' << i;
      ASSERT_NEAR(times[i].end_s, s.simulation.ops[i].end_s, 1e-12) << seed << ' ' << i;
    }
  }
}

TEST(Timeline, StallsAreTheIdleTimeOfTheComputeStream) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Simulated s = simulate_case(seed);
    const std::vector<OpTime> times = times_from_ends(s);
    double stalled = 0, busy = 0, last = 0;
    for (const Stall& stall : compute_stalls(s.plan, times)) {
      stalled += stall.seconds;
      ASSERT_NE(stall.cause, kNone) << "the program thread of a simulation is never late";
      // The cause is the operation that ended last before this one began.
      EXPECT_NEAR(times[stall.cause].end_s, times[stall.op].start_s, 1e-12) << seed;
      EXPECT_NEAR(stall.start_s + stall.seconds, times[stall.op].start_s, 1e-12) << seed;
    }
    for (size_t i = 0; i < times.size(); ++i) {
      if (s.plan.ops[i].stream != StreamKind::Compute) continue;
      busy += times[i].end_s - times[i].start_s;
      last = std::max(last, times[i].end_s);
    }
    EXPECT_NEAR(stalled + busy, last, 1e-9) << seed;
  }
}

TEST(Timeline, OverlapIsWhatBothStreamsShare) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Simulated s = simulate_case(seed);
    double expected = 0;
    for (size_t i = 0; i < s.plan.ops.size(); ++i) {
      for (size_t j = 0; j < s.plan.ops.size(); ++j) {
        if (s.plan.ops[i].stream != StreamKind::Compute ||
            s.plan.ops[j].stream != StreamKind::Update)
          continue;
        const OpTime &a = s.simulation.ops[i], &b = s.simulation.ops[j];
        expected += std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.start_s, b.start_s));
      }
    }
    EXPECT_NEAR(overlap(s.plan, s.simulation.ops, StreamKind::Compute, StreamKind::Update),
                expected, 1e-9)
        << seed;
  }
}

}  // namespace
}  // namespace ebb
