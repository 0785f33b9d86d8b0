// Two ranks of which one does something wrong: it is an error, or it changes bits.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <thread>

#include "comm/thread_ranks.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/planted.h"

namespace ebb::test {
namespace {

// ---- Planted: rank 1 does not do what rank 0 does

/// Trains two ranks for two steps; `before_step` is called with the rank. Returns the error of rank
/// 0.
std::string error_of_rank_0(
    const TrainingCase& first, const TrainingCase& second,
    const std::function<void(uint32_t rank, Trainer&, uint32_t step)>& before_step = {}) {
  ThreadRanks ranks(2, {.timeout_s = 30});
  std::string errors[2];
  const auto train_rank = [&](uint32_t rank) {
    const TrainingCase& run = rank == 0 ? first : second;
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    try {
      train(
          model, prepare_case(model, run, rank), run,
          [&](Trainer& trainer, uint32_t step) {
            if (before_step) before_step(rank, trainer, step);
          },
          &ranks.rank(rank));
    } catch (const LogicError& error) {
      errors[rank] = error.what();
      ranks.rank(rank).fail(error.what());
    }
  };
  std::jthread other([&] { train_rank(1); });
  train_rank(0);
  other.join();
  EXPECT_EQ(errors[0], errors[1]) << "all ranks throw the same";
  return errors[0];
}

const TrainingCase kTwoRanks{.accumulation = 2, .num_steps = 2, .num_ranks = 2};

TEST(PlantedRanks, AnotherStepIsAnError) {
  const auto lose_a_step = [](uint32_t rank, Trainer& trainer, uint32_t step) {
    if (step == 1) trainer.restore({.num_updates = 5 - rank}, [](ParameterId, size_t, auto) {});
  };
  EXPECT_EQ(error_of_rank_0(kTwoRanks, kTwoRanks, lose_a_step),
            "rank 1 begins step 4, rank 0 begins step 5");
}

TEST(PlantedRanks, AnEvaluationAndAStepAreAnError) {
  TrainingCase run = kTwoRanks;
  run.evaluation_batches = 2;
  const Data data(run.model, run.length, 2, 7);
  const auto evaluate_at_one = [&](uint32_t rank, Trainer& trainer, uint32_t step) {
    if (rank == 1 && step == 1) trainer.evaluate(std::span(data.micro_batches()).first(1));
  };
  EXPECT_EQ(error_of_rank_0(run, run, evaluate_at_one),
            "rank 1 begins an evaluation before step 1, rank 0 begins step 1");
}

TEST(PlantedRanks, AnotherPlanIsAnError) {
  const std::function<void(TrainingCase&)> changes[] = {
      [](TrainingCase& run) { run.update = UpdateOrder::Wait; },
      [](TrainingCase& run) { run.order = MicroBatchOrder::Vertical; },
      [](TrainingCase& run) { run.dropout = 0.1f; },
      [](TrainingCase& run) { run.group_dtype = DType::BF16; }};
  for (const auto& change : changes) {
    TrainingCase other = kTwoRanks;
    change(other);
    const std::string error = error_of_rank_0(kTwoRanks, other);
    EXPECT_NE(error.find("rank 1 has another plan than rank 0"), std::string::npos) << error;
  }
}

// ---- Planted: the plan of rank 1 is damaged

/// Trains on two ranks. `damage` changes the preparation of rank 1; the model of rank 0 is late.
uint64_t hash_with(const TrainingCase& run, const std::function<void(Preparation&)>& damage,
                   int pause_ms = 0) {
  ThreadRanks ranks(2, {.ranks_per_machine = 2 / run.num_machines});
  uint64_t hashes[2] = {};
  const auto train_rank = [&](uint32_t rank) {
    const Gpt2 gpt(run.model, kMicroBatchSize, run.length, run.dtype);
    LateModel model(gpt);
    Preparation prepared = prepare_case(model, run, rank);
    if (rank == 1) damage(prepared);
    model.pause_ms = rank == 0 ? pause_ms : 0;
    hashes[rank] = train(model, prepared, run, {}, &ranks.rank(rank)).outcome.hash;
  };
  std::jthread other([&] { train_rank(1); });
  train_rank(0);
  other.join();
  EXPECT_EQ(hashes[0], hashes[1]);
  return hashes[0];
}

/// The first operation of this kind loses all its waits.
void drop_waits(Preparation& prepared, OpKind kind) {
  prepared.plan.ops[nth_op(prepared.plan, 0, [&](const Op& op) { return op.kind == kind; })]
      .num_waits = 0;
}

TEST(PlantedRanks, AMissingWaitForTheSumsOfAnotherRankChangesBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer reports it";
#endif
  for (const bool on_devices : {false, true}) {
    const TrainingCase run{.accumulation = 2, .num_ranks = 2, .sums_on_devices = on_devices};
    const uint64_t whole = hash_with(
        run, [](Preparation&) {}, 50);
    EXPECT_NE(hash_with(
                  run, [](Preparation& p) { drop_waits(p, OpKind::AddGroups); }, 50),
              whole)
        << on_devices;
  }
}

/// Rank 1 adds its groups to the running sum of rank 0 too early, or copies it too early.
TEST(PlantedRanks, AMissingWaitForARunningSumChangesBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer reports it";
#endif
  const TrainingCase run{.accumulation = 2, .num_ranks = 2, .num_machines = 2, .chains_sums = true};
  const uint64_t whole = hash_with(
      run, [](Preparation&) {}, 50);
  EXPECT_NE(hash_with(
                run, [](Preparation& p) { drop_waits(p, OpKind::FetchSum); }, 50),
            whole);
  const auto forget_fetch = [](Preparation& p) {
    const auto is_addition = [](const Op& op) { return op.kind == OpKind::AddGroups; };
    const Op& add = p.plan.ops[nth_op(p.plan, 0, is_addition)];
    for (OpIndex& wait : std::span(p.plan.waits).subspan(add.first_wait, add.num_waits)) {
      if (p.plan.ops[wait].kind == OpKind::FetchSum) wait = OpIndex(0);
    }
  };
  EXPECT_NE(hash_with(run, forget_fetch, 50), whole);
}

TEST(PlantedRanks, AChunkThatIsNotUpdatedChangesBits) {
  for (const Between between : {Between::Nothing, Between::State}) {
    const bool on_owner = between == Between::State;
    const TrainingCase run{.clip = false,
                           .accumulation = 2,
                           .update = UpdateOrder::Wait,
                           .between = between,
                           .num_ranks = 2,
                           .sums_on_devices = on_owner};
    const uint64_t whole = hash_with(run, [](Preparation&) {});
    // An update of the step before, which deferred none, does nothing.
    const auto skip_update = [&](Preparation& p) {
      const auto is_update = [&](const Op& op) {
        return op.kind == OpKind::Update && p.plan.chunks[op.chunk.index].is_on_owner() == on_owner;
      };
      p.plan.ops[nth_op(p.plan, 0, is_update)].deferred = true;
    };
    EXPECT_NE(hash_with(run, skip_update), whole) << on_owner;
  }
}

}  // namespace
}  // namespace ebb::test
