// The timeline of a plan is computed from the times at which operations end. The tests compare it
// with the simulation, which also knows when they begin.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/scheduler/timed_plans.h"

namespace ebb {
namespace {

using test::simulate_any_case;
using test::SimulatedCase;

std::vector<OpTime> times_from_ends(const SimulatedCase& s) {
  std::vector<OpTime> times(s.plan.ops.size());
  fill_times(
      s.plan, [&s](uint32_t i) { return s.simulation.ops[i].end_s; }, times);
  return times;
}

TEST(Timeline, OperationsBeginAsInTheSimulation) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const SimulatedCase s = simulate_any_case(seed);
    const std::vector<OpTime> times = times_from_ends(s);
    for (size_t i = 0; i < times.size(); ++i) {
      ASSERT_NEAR(times[i].start_s, s.simulation.ops[i].start_s, 1e-12) << seed << ' ' << i;
      ASSERT_NEAR(times[i].end_s, s.simulation.ops[i].end_s, 1e-12) << seed << ' ' << i;
    }
  }
}

TEST(Timeline, StallsAreTheIdleTimeOfTheComputeStream) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const SimulatedCase s = simulate_any_case(seed);
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
    const SimulatedCase s = simulate_any_case(seed);
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
