// Waits are charged to what caused them. Plans of a few operations have causes that can be read off
// the times; random plans are compared with the stalls and with other machines.
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <vector>

#include "scheduler/plan/simulate.h"
#include "scheduler/plan/wait_causes.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb {
namespace {

/// Seconds by cause, without the wait for the end of the step.
using Seconds = std::array<double, kNumWaitCauses>;

double of(const Seconds& seconds, WaitCause cause) { return seconds[static_cast<size_t>(cause)]; }

Seconds causes_of(const Plan& plan, std::span<const OpTime> times) {
  Seconds seconds{};
  for_each_wait_share(plan, times, [&](const WaitShare& share) {
    if (share.waiting != kNone) seconds[static_cast<size_t>(share.cause)] += share.seconds;
  });
  return seconds;
}

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
  Seconds causes() const { return causes_of(plan, times); }
};

constexpr Op kLoad{
    .kind = OpKind::Move, .stream = StreamKind::Load, .from = Tier::Host, .to = Tier::Device};
constexpr Op kStore{
    .kind = OpKind::Move, .stream = StreamKind::Store, .from = Tier::Device, .to = Tier::Host};
constexpr Op kDrop{.kind = OpKind::Drop, .stream = StreamKind::Load};
constexpr Op kRun{.kind = OpKind::Call};
constexpr Op kUpdate{.kind = OpKind::Update, .stream = StreamKind::Update};

/// (update, load, store, block, norm, program)
void expect(const Seconds& seconds, const Seconds& expected) {
  for (int i = 0; i < kNumWaitCauses; ++i) {
    EXPECT_NEAR(seconds[static_cast<size_t>(i)], expected[static_cast<size_t>(i)], 1e-12)
        << name_of(static_cast<WaitCause>(i));
  }
}

TEST(WaitCauses, ALoadThatOnlyCopiesIsTheCause) {
  Written w;
  w.add(kLoad, {0, 3});
  w.add(kRun, {3, 4}, {0});
  expect(w.causes(), {0, 3, 0, 0, 0, 0});
}

TEST(WaitCauses, ALoadThatWaitedForItsUpdateIsNot) {
  Written w;
  w.add(kUpdate, {0, 5});
  w.add(kLoad, {5, 6}, {0});
  w.add(kRun, {6, 7}, {1});
  expect(w.causes(), {5, 1, 0, 0, 0, 0});
}

/// The load takes all of the wait, but it would have been in time without the update before it.
TEST(WaitCauses, AsFarAsALoadBeganLateTheUpdateIsTheCause) {
  Written w;
  w.add(kUpdate, {0, 5});
  w.add(kLoad, {0, 1});
  w.add(kRun, {1, 5}, {1});    // waits 1 s for a copy
  w.add(kLoad, {5, 7}, {0});   // began 4 s late
  w.add(kRun, {7, 8}, {3});    // waits 2 s
  w.add(kLoad, {7, 11});       // began in time
  w.add(kRun, {11, 12}, {5});  // waits 3 s
  expect(w.causes(), {2, 1 + 3, 0, 0, 0, 0});
}

TEST(WaitCauses, AnEarlierLoadMayHaveBeenLate) {
  Written w;
  w.add(kLoad, {0, 1});
  w.add(kRun, {1, 4}, {0});
  w.add(kUpdate, {0, 3});
  w.add(kLoad, {3, 5}, {2});  // began 2 s late
  w.add(kLoad, {5, 7});
  w.add(kRun, {7, 8}, {4});  // waits 3 s
  expect(w.causes(), {2, 1 + 1, 0, 0, 0, 0});
}

/// The copy thread waits for one operation after the other.
TEST(WaitCauses, ATransferWaitsForEarlierOperationsOfTheCopyThread) {
  Written w;
  w.add(kRun, {0, 2});
  w.add(kDrop, {2, 2}, {0});  // the call used the block until now
  w.add(kLoad, {2, 5});
  w.add(kRun, {5, 6}, {2});
  expect(w.causes(), {0, 1, 0, 2, 0, 0});
}

TEST(WaitCauses, ABlockMayBeHeldByAStore) {
  Written w;
  w.add(kRun, {0, 1});
  w.add(kStore, {1, 4}, {0});
  w.add(kDrop, {4, 4}, {1});
  w.add(kLoad, {4, 5});
  w.add(kRun, {5, 6}, {3});
  // Of the 4 s, the store was on its way for 3: it could not begin before the call had ended.
  expect(w.causes(), {0, 1, 3, 0, 0, 0});
}

/// Gradient, store, update and load follow each other: each is charged for its own time.
TEST(WaitCauses, AChainIsDividedOverItsParts) {
  Written w;
  w.add(kRun, {0, 1});
  w.add(kStore, {1, 3}, {0});
  w.add(kUpdate, {3, 7}, {1});
  w.add(kLoad, {7, 8}, {2});
  w.add(kRun, {8, 9}, {3});
  expect(w.causes(), {4, 1, 2, 0, 0, 0});
}

TEST(WaitCauses, TheProgramMayBeLate) {
  Written w;
  w.add(kLoad, {0, 1});
  w.add(kRun, {1.5, 2}, {0});
  w.add(kRun, {3, 4});
  expect(w.causes(), {0, 1, 0, 0, 0, 1.5});
}

constexpr Machine kMachine{.flops_per_s = 3e9,
                           .device_bytes_per_s = 2e9,
                           .load_bytes_per_s = 1e9,
                           .store_bytes_per_s = 7e8,
                           .update_bytes_per_s = 2e9};

TEST(WaitCauses, TheSumOverTheCausesOfAWaitIsTheWait) {
  Seconds all{};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const test::Case c = test::make_any_case(seed);
    const Plan plan =
        test::plan_case(c, test::smallest_blocks(c) + seed % 4, seed % 2, seed % 3 == 0).plan;
    const Simulation simulation = simulate(plan, c.trace, c.layout, kMachine);
    std::vector<double> waited(plan.ops.size(), 0);
    double at_end = 0;
    for_each_wait_share(plan, simulation.ops, [&](const WaitShare& share) {
      EXPECT_GT(share.seconds, 0) << seed;
      EXPECT_NE(share.cause, WaitCause::Program) << "a simulated program is never late: " << seed;
      (share.waiting == kNone ? at_end : waited[share.waiting]) += share.seconds;
      all[static_cast<size_t>(share.cause)] += share.seconds;
    });
    for (const Stall& stall : compute_stalls(plan, simulation.ops)) {
      EXPECT_NEAR(waited[stall.op], stall.seconds, 1e-12) << seed;
      waited[stall.op] = 0;
    }
    for (const double seconds : waited) EXPECT_EQ(seconds, 0) << seed;
    double last = 0;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (plan.ops[i].stream == StreamKind::Compute) last = std::max(last, simulation.ops[i].end_s);
    }
    EXPECT_NEAR(at_end, simulation.seconds - last, 1e-12) << seed;
  }
  for (const WaitCause cause : {WaitCause::Update, WaitCause::Load, WaitCause::Store}) {
    EXPECT_GT(of(all, cause), 0) << name_of(cause);
  }
}

/// The waits that are charged to a resource are shorter by about as much if nothing waits for it.
/// Returns the part of the charged time that this machine does not have.
double saved_share(const test::Case& c, const Plan& plan, double charged_s,
                   double Machine::*bytes_per_s) {
  Machine faster = kMachine;
  faster.*bytes_per_s = 0;  // no limit
  const double saved_s = simulate(plan, c.trace, c.layout, kMachine).seconds -
                         simulate(plan, c.trace, c.layout, faster).seconds;
  return charged_s > 0 ? saved_s / charged_s : 1;
}

/// Plans with deferred updates: their loads wait for updates. With a false attribution, here of all
/// waits to the operation that ended last, the test would fail.
TEST(WaitCauses, AFasterResourceSavesWhatIsChargedToIt) {
  double updates_s = 0, saved_s = 0, direct_s = 0, saved_of_direct_s = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    test::CaseOptions options{.num_layers = 6};
    const test::Case c = test::make_case(options, seed);
    const Plan plan = test::plan_case(c, test::smallest_blocks(c) + 4, true, true).plan;
    const Simulation simulation = simulate(plan, c.trace, c.layout, kMachine);
    const Seconds seconds = causes_of(plan, simulation.ops);
    const double charged_s = of(seconds, WaitCause::Update);
    updates_s += charged_s;
    saved_s += charged_s * saved_share(c, plan, charged_s, &Machine::update_bytes_per_s);
    Seconds direct{};
    for (const Stall& stall : compute_stalls(plan, simulation.ops)) {
      const StreamKind stream = plan.ops[stall.cause].stream;
      direct[stream == StreamKind::Load ? 1 : 0] += stall.seconds;
    }
    direct_s += direct[1];
    saved_of_direct_s += direct[1] * saved_share(c, plan, direct[1], &Machine::load_bytes_per_s);
  }
  EXPECT_GT(updates_s, 0);
  EXPECT_GT(saved_s, 0.8 * updates_s);
  EXPECT_GT(updates_s, 0.8 * saved_s);
  EXPECT_LT(saved_of_direct_s, 0.5 * direct_s) << "the false attribution would pass as well";
}

}  // namespace
}  // namespace ebb
