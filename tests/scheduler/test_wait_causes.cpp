// Waits are charged to what caused them. Plans of a few operations have causes that can be read off
// the times; random plans are compared with the stalls and with other machines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "scheduler/plan/wait_causes.h"
#include "tests/scheduler/timed_plans.h"

namespace ebb {
namespace {

using namespace test;

std::string index_text(OpIndex op, std::string_view otherwise) {
  return op == kNone ? std::string(otherwise) : fmt::to_string(uint32_t{op});
}

/// "3 waits for 2 from 1: updates 2 by 0, loads 1 by 2": one line for each wait. Operations are
/// named by their positions.
std::string waits_of(const WrittenPlan& w) {
  std::string text;
  double from_s = -1;
  for_each_wait_share(w.plan, w.times, [&](const WaitShare& share) {
    if (share.start_s != from_s) {
      from_s = share.start_s;
      text += fmt::format("{}{} waits for {} from {:g}:", text.empty() ? "" : "\n",
                          index_text(share.waiting, "the step"),
                          index_text(share.direct, "the program"), from_s);
    } else {
      text += ",";
    }
    text += fmt::format(" {} {:g}", name_of(share.cause), share.seconds);
    if (share.by != kNone) text += fmt::format(" by {}", uint32_t{share.by});
  });
  return text;
}

TEST(WaitCauses, ALoadThatOnlyCopiesIsTheCause) {
  EXPECT_EQ(waits_of({{kLoad, {0, 3}}, {kRun, {3, 4}, {0}}}), "1 waits for 0 from 0: loads 3 by 0");
}

TEST(WaitCauses, OfTwoOperationsTheOneThatEndsLastIsTheCause) {
  EXPECT_EQ(waits_of({{kLoad, {0, 1}}, {kUpdate, {0, 3}}, {kRun, {3, 4}, {0, 1}}}),
            "2 waits for 1 from 0: updates 3 by 1");
  EXPECT_EQ(waits_of({{kLoad, {0, 1}}, {kUpdate, {0, 3}}, {kRun, {3, 4}, {1, 0}}}),
            "2 waits for 1 from 0: updates 3 by 1");
}

TEST(WaitCauses, ALoadThatWaitedForItsUpdateIsNot) {
  EXPECT_EQ(waits_of({{kUpdate, {0, 5}}, {kLoad, {5, 6}, {0}}, {kRun, {6, 7}, {1}}}),
            "2 waits for 1 from 0: updates 5 by 0, loads 1 by 1");
}

/// The load takes all of the wait, but it would have been in time without the update before it.
TEST(WaitCauses, AsFarAsALoadBeganLateTheUpdateIsTheCause) {
  EXPECT_EQ(waits_of({{kUpdate, {0, 5}},
                      {kLoad, {0, 1}},
                      {kRun, {1, 5}, {1}},      // waits 1 s for a copy
                      {kLoad, {5, 7}, {0}},     // began 4 s late
                      {kRun, {7, 8}, {3}},      // waits 2 s
                      {kLoad, {7, 11}},         // began in time
                      {kRun, {11, 12}, {5}}}),  // waits 3 s
            "2 waits for 1 from 0: loads 1 by 1\n"
            "4 waits for 3 from 5: updates 2 by 0\n"
            "6 waits for 5 from 8: loads 3 by 5");
}

TEST(WaitCauses, AnEarlierLoadMayHaveBeenLate) {
  EXPECT_EQ(waits_of({{kLoad, {0, 1}},
                      {kRun, {1, 4}, {0}},
                      {kUpdate, {0, 3}},
                      {kLoad, {3, 5}, {2}},  // began 2 s late
                      {kDrop, {3, 3}},       // is not between the transfers
                      {kLoad, {5, 7}},
                      {kRun, {7, 8}, {5}}}),  // waits 3 s
            "1 waits for 0 from 0: loads 1 by 0\n"
            "6 waits for 5 from 4: updates 2 by 2, loads 1 by 5");
}

/// The copy thread waits for one operation after the other.
TEST(WaitCauses, ATransferWaitsForEarlierOperationsOfTheCopyThread) {
  EXPECT_EQ(waits_of({{kRun, {0, 2}},
                      {kDrop, {2, 2}, {0}},  // the call used the block until now
                      {kLoad, {2, 5}},
                      {kRun, {5, 6}, {2}}}),
            "3 waits for 2 from 2: free blocks 2 by 0, loads 1 by 2");
}

/// The load's own wait had ended long before.
TEST(WaitCauses, ABlockMayBeHeldByAStore) {
  EXPECT_EQ(waits_of({{kUpdate, {0, 1}},
                      {kRun, {0, 1}},
                      {kStore, {1, 4}, {1}},
                      {kDrop, {4, 4}, {2}},
                      {kLoad, {4, 5}, {0}},
                      {kRun, {5, 6}, {4}}}),
            // The store could not begin before the call had ended.
            "5 waits for 4 from 1: stores 3 by 2, loads 1 by 4");
}

/// Until 3 the link was busy or compute had not caught up, so an earlier block would not have
/// helped.
TEST(WaitCauses, AnEarlierBlockHelpsOnlyWhileTheLinkIsIdle) {
  EXPECT_EQ(waits_of({{kRun, {0, 4}},
                      {kLoad, {0, 3.5}},
                      {kDrop, {4, 4}, {0}},
                      {kLoad, {4, 7}},
                      {kRun, {7, 8}, {3}}}),
            "4 waits for 3 from 4: free blocks 0.5 by 0, loads 2.5 by 3");
  EXPECT_EQ(waits_of({{kUpdate, {0, 3}},
                      {kLoad, {0, 1}},
                      {kRun, {3, 4}, {0}},
                      {kDrop, {4, 4}, {2}},
                      {kLoad, {4, 8}},
                      {kRun, {8, 9}, {4}}}),
            "2 waits for 0 from 0: updates 3 by 0\n"
            "5 waits for 4 from 4: free blocks 1 by 2, loads 3 by 4");
}

/// Gradient, store, update and load follow each other: each is charged for its own time.
TEST(WaitCauses, AChainIsDividedOverItsParts) {
  EXPECT_EQ(waits_of({{kRun, {0, 1}},
                      {kStore, {1, 3}, {0}},
                      {kUpdate, {3, 7}, {1}},
                      {kLoad, {7, 8}, {2}},
                      {kRun, {8, 9}, {3}}}),
            "4 waits for 3 from 1: stores 2 by 1, updates 4 by 2, loads 1 by 3");
}

/// An update on the device, which is a call here, waits for the norm.
TEST(WaitCauses, TheNormIsNoUpdate) {
  EXPECT_EQ(waits_of({{kUpdate, {0, 2}}, {kNorm, {2, 3}}, {kRun, {3, 4}, {1}}}),
            "2 waits for 1 from 0: the norm 1 by 1, updates 2 by 0");
}

TEST(WaitCauses, WhatNothingExplainsIsTheLoads) {
  EXPECT_EQ(waits_of({{kUpdate, {0, 1}},
                      {kLoad, {1, 2}, {0}},
                      {kLoad, {3, 5}},  // began late, but waited for nothing
                      {kRun, {5, 6}, {2}}}),
            "3 waits for 2 from 0: loads 2 by 2, loads 3 by 2");
  EXPECT_EQ(waits_of({{kUpdate, {1, 2}},  // began late itself
                      {kLoad, {0, 1}},
                      {kLoad, {2, 4}, {0}},
                      {kRun, {4, 5}, {2}}}),
            "3 waits for 2 from 0: updates 1 by 0, loads 2 by 2, loads 1 by 2");
}

TEST(WaitCauses, TheProgramMayBeLate) {
  EXPECT_EQ(waits_of({{kLoad, {0, 1}}, {kRun, {1.5, 2}, {0}}, {kRun, {3, 4}, {0}}}),
            "1 waits for 0 from 0: loads 1 by 0, the program 0.5\n"
            "2 waits for the program from 2: the program 1");
}

TEST(WaitCauses, TheStepWaitsForItsLastOperation) {
  EXPECT_EQ(
      waits_of({{kRun, {0, 1}}, {kStore, {1, 2}, {0}}, {kUpdate, {2, 5}, {1}}, {kDrop, {2, 2}}}),
      "the step waits for 2 from 1: stores 1 by 1, updates 3 by 2");
}

using Seconds = std::array<double, kNumWaitCauses>;

double of(const Seconds& seconds, WaitCause cause) { return seconds[static_cast<size_t>(cause)]; }

/// Seconds by cause, without the wait for the end of the step.
Seconds causes_of(const Plan& plan, std::span<const OpTime> times) {
  Seconds seconds{};
  for_each_wait_share(plan, times, [&](const WaitShare& share) {
    if (share.waiting != kNone) seconds[static_cast<size_t>(share.cause)] += share.seconds;
  });
  return seconds;
}

TEST(WaitCauses, TheSumOverTheCausesOfAWaitIsTheWait) {
  Seconds all{};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const SimulatedCase s = simulate_any_case(seed);
    const Plan& plan = s.plan;
    const Simulation& simulation = s.simulation;
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
double saved_share(const Case& c, const Plan& plan, double charged_s,
                   double Machine::*bytes_per_s) {
  Machine faster = kSlowMachine;
  faster.*bytes_per_s = 0;  // no limit
  const double saved_s = simulate(plan, c.trace, c.layout, kSlowMachine).seconds -
                         simulate(plan, c.trace, c.layout, faster).seconds;
  return charged_s > 0 ? saved_s / charged_s : 1;
}

/// Plans with deferred updates: their loads wait for updates. With a false attribution, here of all
/// waits to the operation that ended last, the test would fail.
TEST(WaitCauses, AFasterResourceSavesWhatIsChargedToIt) {
  double updates_s = 0, saved_s = 0, direct_s = 0, saved_of_direct_s = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CaseOptions options{.num_layers = 6};
    const Case c = make_case(options, seed);
    const Plan plan = plan_case(c, smallest_blocks(c) + 4, true, true).plan;
    const Simulation simulation = simulate(plan, c.trace, c.layout, kSlowMachine);
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
