// The part of the matrix that runs under ThreadSanitizer: few runs, with the schedules that move
// most chunks.
#include <gtest/gtest.h>

#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

TEST(IdentityRaces, SmallestBudgetTwoThreads) {
  IdentityCheck check;
  for (const bool clip : {false, true}) {
    for (const Memory memory : {Memory::Smallest, Memory::Between}) {
      for (const Recompute& recompute : {kRecomputeNone, kRecomputeEach}) {
        check.run({.clip = clip,
                   .accumulation = 2,
                   .memory = memory,
                   .recompute = recompute,
                   .num_threads = 2,
                   .num_steps = 2});
      }
    }
  }
  EXPECT_EQ(check.num_runs(), 10u);
}

TEST(IdentityRaces, OffloadedActivations) {
  IdentityCheck check;
  for (const MicroBatchOrder order : {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical}) {
    check.run({.accumulation = 2,
               .memory = Memory::Smallest,
               .num_threads = 2,
               .order = order,
               .activations = ActivationPlacement::Offload,
               .num_steps = 2});
  }
}

TEST(IdentityRaces, StateThatStaysBetweenSteps) {
  IdentityCheck check;
  for (const Between between : {Between::Weights, Between::State}) {
    for (const bool clip : {false, true}) {
      check.run({.clip = clip,
                 .accumulation = 2,
                 .memory = Memory::Between,
                 .num_threads = 2,
                 .order = MicroBatchOrder::Vertical,
                 .between = between,
                 .evaluation_batches = 1});
    }
  }
}

/// The first step speculates, and clipping then rolls its updates back.
TEST(IdentityRaces, Speculation) {
  IdentityCheck check;
  TrainingCase run{.memory = Memory::Smallest, .num_threads = 2, .max_norm = 1e9f};
  const double norm = train(run).outcome.norms[0];
  run.max_norm = static_cast<float>(0.98 * norm);
  run.update = UpdateOrder::Speculate;
  check.run(run);
  run.accumulation = 2;
  run.order = MicroBatchOrder::Vertical;
  run.max_norm = 1e9f;
  check.run(run);
}

TEST(IdentityRaces, EvaluationOverAnEmulatedLink) {
  IdentityCheck check;
  check.run({.memory = Memory::Smallest,
             .num_threads = 2,
             .evaluation_batches = 2,
             .link_bytes_per_s = 300e6,
             .num_steps = 2});
}

}  // namespace
}  // namespace ebb::test
