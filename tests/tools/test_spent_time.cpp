// How the time of a step is divided. Plans of a few operations have expected values; random plans
// are compared with the simulation.
#include <gtest/gtest.h>

#include <span>

#include "tests/device/counting_new.h"
#include "tests/scheduler/timed_plans.h"
#include "tools/spent_time.h"

namespace ebb {
namespace {

using namespace test;

/// How long the compute stream was busy.
double computed_s(const Plan& plan, std::span<const OpTime> times) {
  double sum = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    if (plan.ops[i].stream == StreamKind::Compute) sum += times[i].end_s - times[i].start_s;
  }
  return sum;
}

SpentTime spent_of(const WrittenPlan& w, double step_s) {
  return spent_time(w.plan, w.times, step_s, computed_s(w.plan, w.times));
}

TEST(SpentTime, EveryKindOfWaitIsCountedSeparately) {
  const WrittenPlan w{
      {kLoad, {0, 2}},
      {kRun, {2, 5}, {0}},  // 2 s for the load
      {kStore, {5, 9}, {1}},
      {kAllocate, {9, 9}, {2}},  // allocated when the store has freed the block
      {kRun, {9, 10}, {3}},      // 4 s for the store, not for the allocation
      {kUpdate, {10, 13}, {1}},
      {kRun, {13, 14}, {5}},    // 3 s for the update
      {kRun, {14.5, 15}, {6}},  // 0.5 s for the program thread, which submits late
  };
  const SpentTime spent = spent_of(w, 15.25);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Load), 2);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Store), 4);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Update), 3);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 5.5);
  EXPECT_DOUBLE_EQ(spent.rest_s, 0.75);
  EXPECT_DOUBLE_EQ(spent.total_s(), 15.25);
}

TEST(SpentTime, AfterTheKernelsTheStepWaitsForStoresAndUpdates) {
  const WrittenPlan w{
      {kRun, {0, 1}},
      {kStore, {1, 2}, {0}},
      {kUpdate, {2, 5}, {1}},
  };
  const SpentTime spent = spent_of(w, 5.5);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 1);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Store), 1);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Update), 3);
  EXPECT_DOUBLE_EQ(spent.rest_s, 0.5);
}

TEST(SpentTime, TimeBetweenTheKernelsOfAnOperationIsTheProgramThreads) {
  const WrittenPlan w{
      {kLoad, {0, 1}},
      {kRun, {1, 5}, {0}},
  };
  const SpentTime spent = spent_time(w.plan, w.times, 5, 2.5);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 2.5);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Load), 1);
  EXPECT_DOUBLE_EQ(spent.rest_s, 1.5);
}

TEST(SpentTime, AddsUpToTheStepOfEverySimulatedPlan) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto& [planned, plan, simulation] = simulate_any_case(seed);
    double waited = 0;
    for (const Stall& stall : compute_stalls(plan, simulation.ops)) waited += stall.seconds;
    const double busy_s = computed_s(plan, simulation.ops);
    const SpentTime spent = spent_time(plan, simulation.ops, simulation.seconds, busy_s);
    EXPECT_EQ(spent.kernels_s, busy_s) << seed;
    EXPECT_NEAR(spent.total_s(), simulation.seconds, 1e-12) << seed;
    EXPECT_GE(spent.total_s() - spent.kernels_s, waited - 1e-12) << seed;
  }
}

TEST(SpentTime, AllocatesNothing) {
  const Case c = make_any_case(3);
  const Plan plan = plan_case(c, smallest_blocks(c) + 1, true).plan;
  const Simulation simulation = simulate(plan, c.trace, c.layout, {.load_bytes_per_s = 1e9});
  const uint64_t before = num_news();
  SpentTime sum;
  for (int step = 0; step < 3; ++step) {
    sum += spent_time(plan, simulation.ops, simulation.seconds, simulation.seconds);
  }
  EXPECT_EQ(num_news(), before);
  EXPECT_NEAR(sum.total_s(), 3 * simulation.seconds, 1e-9);
}

TEST(SpentTime, IsPrintedInShares) {
  EXPECT_EQ(format_spent({.kernels_s = 6, .waits = {2, 1, 0.5, 0.2, 0.1}, .rest_s = 0.2}),
            "compute 60.0 %, waiting for updates 20.0 %, loads 10.0 %, stores 5.0 %, free blocks "
            "2.0 %, the norm 1.0 %, rest 2.0 %");
  EXPECT_EQ(format_spent({}),
            "compute 0.0 %, waiting for updates 0.0 %, loads 0.0 %, stores 0.0 %, free blocks 0.0 "
            "%, the norm 0.0 %, rest 0.0 %");
}

}  // namespace
}  // namespace ebb
