// Planted defects: each test damages a plan or its data and expects that validate(), the executor
// or the comparison of bits finds the damage. This shows that the comparisons of other tests can
// fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "device/dtype.h"
#include "scheduler/plan/validate.h"
#include "tests/device/tries.h"
#include "tests/trainer/cases.h"
#include "tests/trainer/planted.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {
namespace {

class Planted : public testing::Test {
 protected:
  Preparation plan() const { return prepare_case(model_, run_); }
  Outcome outcome(const Preparation& prepared) const {
    return train(model_, prepared, run_).outcome;
  }
  /// Expects that the damaged plan gives other bits.
  void expect_other_bits(const Preparation& damaged) const {
    EXPECT_FALSE(outcome(damaged) == outcome(plan()));
  }
  void expect_invalid(const Preparation& damaged) const {
    const PlanOptions options{.num_blocks = damaged.num_blocks,
                              .update_after_norm = damaged.options.max_grad_norm > 0,
                              .schedule = damaged.schedule};
    EXPECT_TRUE(validate(plan().plan, damaged.trace, *damaged.layout, options).empty());
    EXPECT_FALSE(validate(damaged.plan, damaged.trace, *damaged.layout, options).empty());
  }

  const Watchdog watchdog_;
  TrainingCase run_{.accumulation = 2, .memory = Memory::Smallest, .num_steps = 2};
  Gpt2 model_{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
};

#if defined(__SANITIZE_THREAD__)
constexpr double kSlowLink = 1e6;
constexpr int kPauseMs = 400;
#else
constexpr double kSlowLink = 4e6;
constexpr int kPauseMs = 40;
#endif

/// The race is on the fifth load of weights, and on the load after it.
constexpr uint32_t kRacing = 4;

/// Everything is resident, so the copy thread submits all loads while the model pauses. The slow
/// link then delays the copies.
TrainingCase racing_case() {
  return {.num_threads = 1, .link_bytes_per_s = kSlowLink, .num_steps = 1};
}

Outcome run_race(bool wait) {
  const TrainingCase run = racing_case();
  const Gpt2 gpt(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  LateModel model(gpt);
  const Preparation good = prepare_case(model, run);
  model.pause_ms = kPauseMs;
  return train(model, wait ? good : without_waits(good, kRacing), run).outcome;
}

/// A value is freed, and the call that made it does not run again.
TEST_F(Planted, AMissingRepeatedCallIsFound) {
  run_.recompute = {{kNormsLevel}};
  Preparation damaged = plan();
  ASSERT_FALSE(damaged.layer_lists.at(1).repeated_calls.empty());
  damaged.layer_lists[1].repeated_calls.pop_back();
  EXPECT_THROW(outcome(damaged), LogicError);
}

TEST_F(Planted, MissingWaitsAreInvalid) { expect_invalid(without_waits(plan(), kRacing)); }

/// A block that is not loaded yet is poisoned with NaN, so the norm is NaN or the bits differ.
TEST_F(Planted, MissingWaitsChangeBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer reports it: see PlantedDeathTest";
#endif
  const Outcome expected = run_race(true);
  TrainingCase at_memory_speed = racing_case();
  at_memory_speed.link_bytes_per_s = 0;
  EXPECT_TRUE(expected == train(at_memory_speed).outcome);
  EXPECT_TRUE(seen_once([&] { return !(run_race(false) == expected); }));
}

TEST(PlantedDeathTest, MissingWaitsAreADataRace) {
#if !defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "only ThreadSanitizer sees this; build with -DEBB_SANITIZE=thread";
#endif
  constexpr int kReported = 66;  // ThreadSanitizer's exit status
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((run_race(false), std::exit(0)), testing::ExitedWithCode(kReported), "data race");
  EXPECT_EXIT((run_race(true), std::exit(0)), testing::ExitedWithCode(0), "");
}

/// Removes the waits of loads of weights for the deferred updates of the previous step.
Preparation without_update_waits(Preparation prepared) {
  Plan& plan = prepared.plan;
  for (Op& op : plan.ops) {
    if (!loads(op, Space::Weights)) continue;
    const auto begin = plan.waits.begin() + op.first_wait;
    const auto end = std::remove_if(begin, begin + op.num_waits,
                                    [&](OpIndex w) { return plan.ops[w].kind == OpKind::Update; });
    op.num_waits = static_cast<uint32_t>(end - begin);
  }
  return prepared;
}

Outcome run_update_race(bool wait) {
  const TrainingCase run{.memory = Memory::Resident, .num_steps = 3};
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  const Preparation good = prepare_case(model, run);
  return train(model, wait ? good : without_update_waits(good), run).outcome;
}

TEST_F(Planted, ALoadThatDoesNotWaitForItsUpdateIsInvalid) {
  expect_invalid(without_update_waits(plan()));
}

TEST(PlantedDeathTest, ALoadThatDoesNotWaitForItsUpdateIsADataRace) {
#if !defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "only ThreadSanitizer sees this; build with -DEBB_SANITIZE=thread";
#endif
  constexpr int kReported = 66;  // ThreadSanitizer's exit status
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((run_update_race(false), std::exit(0)), testing::ExitedWithCode(kReported),
              "data race");
  EXPECT_EXIT((run_update_race(true), std::exit(0)), testing::ExitedWithCode(0), "");
}

TEST_F(Planted, ABlockUsedTwiceIsRefused) {
  Preparation damaged = plan();
  std::vector<Op>& ops = damaged.plan.ops;
  const auto takes_block = [](const Op& op) {
    return op.kind == OpKind::Move && op.to == Tier::Device;
  };
  ops[nth_op(damaged.plan, 1, takes_block)].block = ops[nth_op(damaged.plan, 0, takes_block)].block;
  expect_invalid(damaged);
  EXPECT_THROW(outcome(damaged), LogicError);
}

/// A chunk of gradient sums is not loaded again, so the sums of the first micro-batch are lost.
TEST_F(Planted, ALostContributionIsFound) {
  Preparation damaged = plan();
  const auto loads_sums = [](const Op& op) { return loads(op, Space::GradientSums); };
  damaged.plan.ops[nth_op(damaged.plan, 0, loads_sums)].from = Tier::None;
  expect_invalid(damaged);
  expect_other_bits(damaged);
}

/// The second micro-batch is replaced by the first.
TEST_F(Planted, ALostMicroBatchChangesBits) {
  const auto run = [&](bool loses) {
    const Preparation prepared = plan();
    const auto device = create_case_device(prepared, run_);
    Trainer trainer(model_, *device, prepared);
    const Data data(small_gpt(), kLength, 2, 1);
    std::vector<MicroBatch> batches = data.micro_batches();
    if (loses) batches[1] = batches[0];
    trainer.step(batches, 1e-3);
    return trainer.state_hash();
  };
  EXPECT_EQ(run(false), run(false));
  EXPECT_NE(run(true), run(false));
}

TEST_F(Planted, ASkippedClipChangesBits) {
  Preparation damaged = plan();
  damaged.options.max_grad_norm = 1e30f;
  expect_other_bits(damaged);
}

/// Removes the deferred update of a speculative chunk, which would roll the chunk back.
Preparation without_undo(Preparation prepared) {
  const Plan& plan = prepared.plan;
  const OpIndex gone = nth_op(plan, 0, [&](const Op& op) {
    return op.kind == OpKind::Update && op.deferred && plan.chunks[op.chunk.index].is_speculative();
  });
  Plan damaged = plan;
  damaged.ops.erase(damaged.ops.begin() + gone);
  damaged.waits.clear();
  for (Op& op : damaged.ops) {
    const auto waits = plan.waits_of(op);
    op.first_wait = static_cast<uint32_t>(damaged.waits.size());
    for (const OpIndex w : waits) {
      if (w != gone) damaged.waits.push_back(OpIndex(w > gone ? w - 1 : w));
    }
    op.num_waits = static_cast<uint32_t>(damaged.waits.size()) - op.first_wait;
  }
  prepared.plan = std::move(damaged);
  return prepared;
}

/// The norm exceeds the limit only with the last gradients, so the speculative updates are wrong.
TEST_F(Planted, ASkippedUndoChangesBits) {
  run_.update = UpdateOrder::Speculate;
  run_.max_norm = 1e9f;
  run_.max_norm = 0.98f * static_cast<float>(outcome(plan()).norms[0]);
  const Result good = train(model_, plan(), run_);
  ASSERT_GT(good.undone[0], 0u);
  TrainingCase waits = run_;
  waits.update = UpdateOrder::Wait;
  EXPECT_TRUE(good.outcome == train(waits).outcome);
  const Preparation damaged = without_undo(plan());
  expect_invalid(damaged);
  expect_other_bits(damaged);
}

TEST_F(Planted, AnUpdateBeforeTheNormIsInvalid) {
  run_.update = UpdateOrder::Wait;
  Preparation damaged = plan();
  Plan& p = damaged.plan;
  const OpIndex norm = nth_op(p, 0, [](const Op& op) { return op.kind == OpKind::Norm; });
  const OpIndex update = nth_op(p, 0, [](const Op& op) { return op.kind == OpKind::Update; });
  ASSERT_LT(norm, update);
  std::swap(p.ops[norm], p.ops[update]);
  expect_invalid(damaged);
}

TEST_F(Planted, AWrongBetaChangesBits) {
  Preparation damaged = plan();
  damaged.options.adam.beta2 += 1e-3f;
  expect_other_bits(damaged);
}

/// The masters lose their low halves between steps.
TEST_F(Planted, ADroppedLowHalfChangesBits) {
  const Preparation prepared = plan();
  const auto drop = [&](Trainer& trainer, uint32_t step) {
    if (step == 0) return;
    for (const Parameter& p : model_.parameters()) {
      std::vector<float> masters = trainer.read_parameter(p.name);
      for (float& x : masters) x = static_cast<float>(BF16(x));
      trainer.write_parameter(p.name, masters);
    }
  };
  const auto keep = [&](Trainer& trainer, uint32_t) {
    for (const Parameter& p : model_.parameters()) {
      trainer.write_parameter(p.name, trainer.read_parameter(p.name));
    }
  };
  const Outcome expected = outcome(prepared);
  EXPECT_TRUE(train(model_, prepared, run_, keep).outcome == expected);
  EXPECT_FALSE(train(model_, prepared, run_, drop).outcome == expected);
}

}  // namespace
}  // namespace ebb::test
