// How the time of a step is divided. Plans of a few operations have expected values; random plans
// are compared with the simulation.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "scheduler/plan/simulate.h"
#include "tests/device/counting_new.h"
#include "tests/scheduler/plan_cases.h"
#include "tools/spent_time.h"

namespace ebb {
namespace {

/// A plan that a test writes operation by operation, with the times of each.
struct Written {
  Plan plan;
  std::vector<OpTime> times;

  void add(Op op, OpTime time, std::initializer_list<int> waits = {}) {
    op.first_wait = static_cast<uint32_t>(plan.waits.size());
    op.num_waits = static_cast<uint32_t>(waits.size());
    for (const int w : waits) plan.waits.push_back(OpIndex(w));
    plan.ops.push_back(op);
    times.push_back(time);
  }
  double computed_s() const {
    double sum = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      if (plan.ops[i].stream == StreamKind::Compute) sum += times[i].end_s - times[i].start_s;
    }
    return sum;
  }
  SpentTime spent(double step_s) const { return spent_time(plan, times, step_s, computed_s()); }
};

constexpr Op kLoad{
    .kind = OpKind::Move, .stream = StreamKind::Load, .from = Tier::Host, .to = Tier::Device};
constexpr Op kStore{
    .kind = OpKind::Move, .stream = StreamKind::Store, .from = Tier::Device, .to = Tier::Host};
constexpr Op kBlock{.kind = OpKind::Move, .stream = StreamKind::Load, .to = Tier::Device};
constexpr Op kRun{.kind = OpKind::Call};
constexpr Op kUpdate{.kind = OpKind::Update, .stream = StreamKind::Update};

TEST(SpentTime, EveryKindOfWaitIsCountedSeparately) {
  Written w;
  w.add(kLoad, {0, 2});
  w.add(kRun, {2, 5}, {0});  // 2 s for the load
  w.add(kStore, {5, 9}, {1});
  w.add(kBlock, {9, 9}, {2});  // allocated when the store has freed the block
  w.add(kRun, {9, 10}, {3});   // 4 s for the store, not for the allocation
  w.add(kUpdate, {10, 13}, {1});
  w.add(kRun, {13, 14}, {5});    // 3 s for the update
  w.add(kRun, {14.5, 15}, {6});  // 0.5 s for the program thread, which submits late
  const SpentTime spent = w.spent(15.25);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Load), 2);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Store), 4);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Update), 3);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 5.5);
  EXPECT_DOUBLE_EQ(spent.rest_s, 0.75);
  EXPECT_DOUBLE_EQ(spent.total_s(), 15.25);
}

TEST(SpentTime, AfterTheKernelsTheStepWaitsForStoresAndUpdates) {
  Written w;
  w.add(kRun, {0, 1});
  w.add(kStore, {1, 2}, {0});
  w.add(kUpdate, {2, 5}, {1});
  const SpentTime spent = w.spent(5.5);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 1);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Store), 1);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Update), 3);
  EXPECT_DOUBLE_EQ(spent.rest_s, 0.5);
}

TEST(SpentTime, TimeBetweenTheKernelsOfAnOperationIsTheProgramThreads) {
  Written w;
  w.add(kLoad, {0, 1});
  w.add(kRun, {1, 5}, {0});
  const SpentTime spent = spent_time(w.plan, w.times, 5, 2.5);
  EXPECT_DOUBLE_EQ(spent.kernels_s, 2.5);
  EXPECT_DOUBLE_EQ(spent.waited_s(WaitCause::Load), 1);
  EXPECT_DOUBLE_EQ(spent.rest_s, 1.5);
}

TEST(SpentTime, TheCauseThatEndsLastCounts) {
  Written w;
  w.add(kLoad, {0, 1});
  w.add(kUpdate, {0, 3});
  w.add(kRun, {3, 4}, {0, 1});
  EXPECT_DOUBLE_EQ(w.spent(4).waited_s(WaitCause::Update), 3);
  EXPECT_DOUBLE_EQ(w.spent(4).waited_s(WaitCause::Load), 0);
}

TEST(SpentTime, AddsUpToTheStepOfEverySimulatedPlan) {
  constexpr Machine kMachine{.flops_per_s = 3e9,
                             .device_bytes_per_s = 2e9,
                             .load_bytes_per_s = 1e9,
                             .store_bytes_per_s = 7e8,
                             .update_bytes_per_s = 2e9};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::Case c = test::make_any_case(seed);
    const Plan plan =
        test::plan_case(c, test::smallest_blocks(c) + seed % 4, seed % 2, seed % 3 == 0).plan;
    const Simulation simulation = simulate(plan, c.trace, c.layout, kMachine);
    double waited = 0, busy = 0;
    for (const Stall& stall : compute_stalls(plan, simulation.ops)) waited += stall.seconds;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (plan.ops[i].stream != StreamKind::Compute) continue;
      busy += simulation.ops[i].end_s - simulation.ops[i].start_s;
    }
    const SpentTime spent = spent_time(plan, simulation.ops, simulation.seconds, busy);
    EXPECT_NEAR(spent.kernels_s, busy, 1e-9) << seed;
    EXPECT_NEAR(spent.total_s(), simulation.seconds, 1e-9) << seed;
    EXPECT_GE(spent.total_s() - spent.kernels_s, waited - 1e-9) << seed;
  }
}

TEST(SpentTime, AllocatesNothing) {
  const test::Case c = test::make_any_case(3);
  const Plan plan = test::plan_case(c, test::smallest_blocks(c) + 1, true).plan;
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
