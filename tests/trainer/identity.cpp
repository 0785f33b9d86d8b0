#include "tests/trainer/identity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ebb::test {
namespace {

/// Checks that the comparison is meaningful: losses are finite and change, and clipping is active.
void expect_training(const Outcome& outcome, const TrainingCase& run) {
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_TRUE(std::isfinite(outcome.losses[i]) && outcome.losses[i] > 0);
    EXPECT_TRUE(std::isfinite(outcome.norms[i]));
    EXPECT_GT(outcome.norms[i], kBitingNorm);
    EXPECT_NE(outcome.losses[i], i > 0 ? outcome.losses[i - 1] : 0) << to_string(run);
  }
}

}  // namespace

const Outcome& IdentityCheck::expected(const TrainingCase& run) {
  const std::vector<int64_t> key = {static_cast<int64_t>(run.dtype),
                                    run.clip,
                                    run.delayed_updates,
                                    run.accumulation,
                                    run.evaluation_batches,
                                    run.num_steps,
                                    std::lround(100 * run.dropout),
                                    std::lround(1000 * run.max_norm.value_or(0)),
                                    run.groups.value_or(0),
                                    static_cast<int64_t>(run.group_dtype)};
  const auto found = expected_.find(key);
  if (found != expected_.end()) return found->second;
  TrainingCase reference = run;
  reference.memory = Memory::Resident;
  reference.num_pieces = 16;
  reference.recompute = kRecomputeNone;
  reference.num_threads = 1;
  reference.update = run.delayed_updates ? UpdateOrder::Overlap : UpdateOrder::Wait;
  reference.order = MicroBatchOrder::Horizontal;
  reference.activations = ActivationPlacement::Device;
  reference.between = Between::Nothing;
  reference.link_bytes_per_s = 0;
  reference.num_ranks = reference.num_machines = 1;
  reference.sums_on_devices = reference.copies_weights = false;
  reference.chains_sums = reference.splits_loads = false;
  ++num_runs_;
  const Outcome outcome = train(reference).outcome;
  expect_training(outcome, reference);
  return expected_.emplace(key, outcome).first->second;
}

void IdentityCheck::run(const TrainingCase& run) {
  SCOPED_TRACE(to_string(run));
  const Outcome& same = expected(run);
  ++num_runs_;
  const Outcome outcome = train(run).outcome;
  EXPECT_TRUE(outcome == same) << to_string(outcome) << "\nexpected\n" << to_string(same);
}

void check_few_schedules(IdentityCheck& check, const TrainingCase& of) {
  for (const bool clip : {true, false}) {
    TrainingCase run = of;
    run.clip = clip;
    run.num_pieces = 4;
    run.update = UpdateOrder::Wait;
    check.run(run);
    run.num_threads = 2;
    run.update = UpdateOrder::Overlap;
    run.memory = Memory::Smallest;
    check.run(run);
    run.recompute = kRecomputeEach;
    run.order = MicroBatchOrder::Vertical;
    run.activations = ActivationPlacement::Offload;
    check.run(run);
    run.memory = Memory::Between;
    run.num_pieces = 9;
    run.between = Between::State;
    check.run(run);
    run.recompute = recompute_together(2);
    run.between = Between::Weights;
    run.order = MicroBatchOrder::Horizontal;
    check.run(run);
  }
}

}  // namespace ebb::test
