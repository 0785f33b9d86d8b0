// Losses, norms and state have the same bits for every budget, schedule and number of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "device/random.h"
#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

TEST(Identity, CoverHasEveryTripleOfValues) {
  const std::vector<Choice> cover = cover_of_matrix();
  EXPECT_EQ(num_missing_triples(cover), 0u);
  EXPECT_LE(cover.size(), 64u);
  EXPECT_GT(num_missing_triples({cover.begin(), cover.end() - 1}), 0u);
}

TEST(Identity, CoverOfTheMatrix) {
  IdentityCheck check;
  for (const Choice& choice : cover_of_matrix()) check.run(case_of(choice));
  EXPECT_GT(check.num_runs(), 45u);
  EXPECT_LE(check.num_runs(), 100u);
}

/// The matrix covers all paths of fp16 with bf16, except the state and the loss scale of fp16.
TEST(Identity, Fp16) {
  IdentityCheck check;
  check_few_schedules(check, {.dtype = DType::F16, .accumulation = 2});
  EXPECT_EQ(check.num_runs(), 12u);
}

/// The dropout mask depends only on the step, the sample and the position, so a recomputed layer
/// has the same mask.
TEST(Identity, Dropout) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 2, .evaluation_batches = 1, .dropout = 0.2f});
  EXPECT_EQ(check.num_runs(), 12u);
}

/// Each group of values alone, and the sets that --recompute names.
TEST(Identity, EachGroupOfRecomputedValues) {
  IdentityCheck check;
  for (const ValueGroups groups : {kNorms, kActivations, kMlp, kAttention, kOthers, kNormsLevel,
                                   kMlpLevel, kAttentionLevel, kWholeLayer}) {
    for (const float dropout : {0.0f, 0.2f}) {
      check.run({.accumulation = 2,
                 .memory = Memory::Smallest,
                 .recompute = {{groups}},
                 .order = MicroBatchOrder::Vertical,
                 .dropout = dropout});
    }
  }
  EXPECT_EQ(check.num_runs(), 20u);
}

/// Any set of groups in any layer.
TEST(Identity, RandomGroupsOfRecomputedValues) {
  IdentityCheck check;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TrainingCase run{.dtype = seed % 5 == 0 ? DType::F32 : DType::BF16,
                     .accumulation = 2,
                     .memory = seed % 3 == 0 ? Memory::Between : Memory::Smallest,
                     .num_threads = 2,
                     .dropout = seed % 4 == 0 ? 0.2f : 0};
    for (int64_t i = 0; i < run.model.num_layers; ++i) {
      const auto word = philox4x32(seed, static_cast<uint64_t>(i), 46)[0];
      run.recompute.groups.push_back(static_cast<ValueGroups>(word % (kWholeLayer + 1)));
    }
    run.order = seed % 2 == 0 ? MicroBatchOrder::Horizontal : MicroBatchOrder::Vertical;
    run.activations =
        seed / 2 % 2 == 0 ? ActivationPlacement::Device : ActivationPlacement::Offload;
    check.run(run);
  }
}

TEST(Identity, EvaluationHasNoDropout) {
  TrainingCase run{.evaluation_batches = 1, .num_steps = 1};
  const auto evaluate = [&](float probability) {
    run.dropout = probability;
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, run.dtype);
    const Preparation prepared = prepare_case(model, run);
    const auto device = create_case_device(prepared, run);
    Trainer trainer(model, *device, prepared);
    const Data data(small_gpt(), kLength, 1, 5);
    const double untrained = trainer.evaluate(data.micro_batches());
    return std::pair(untrained, trainer.step(data.micro_batches(), 1e-3).loss);
  };
  const auto without = evaluate(0), with = evaluate(0.2f);
  EXPECT_EQ(with.first, without.first);
  EXPECT_NE(with.second, without.second);
  EXPECT_NEAR(with.second, without.second, 0.2 * without.second);
}

/// The same samples have the same masks in one micro-batch or in two. Losses differ by rounding.
TEST(Identity, DropoutDoesNotDependOnTheMicroBatchSize) {
  const auto losses_of = [](int64_t batch, uint32_t accumulation, float probability) {
    const Gpt2 model(small_gpt(), batch, kLength, DType::F32);
    const TrainerOptions options{.dtype = DType::F32,
                                 .chunk_bytes = size_t{1} << 20,
                                 .gradient_accumulation = accumulation,
                                 .dropout = probability};
    const Preparation prepared = prepare(model, options, {.device = {.num_threads = 1}});
    const auto device = create_device({.profile = {.num_threads = 1}});
    Trainer trainer(model, *device, prepared);
    const auto count = static_cast<int64_t>(accumulation) * batch * kLength;
    std::vector<int32_t> tokens(static_cast<size_t>(count)), positions(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(i * 37 % 251);
      positions[i] = static_cast<int32_t>(i % static_cast<size_t>(kLength));
    }
    std::vector<MicroBatch> batches;
    for (uint32_t k = 0; k < accumulation; ++k) {
      const auto part = [&](std::vector<int32_t>& values) {
        return Tensor{reinterpret_cast<std::byte*>(values.data() + k * batch * kLength),
                      DType::I32,
                      {batch, kLength}};
      };
      batches.push_back({.inputs = {part(tokens), part(positions), part(tokens)},
                         .num_targets = static_cast<uint64_t>(batch * kLength)});
    }
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) losses.push_back(trainer.step(batches, 1e-3).loss);
    return losses;
  };
  const auto whole = losses_of(4, 1, 0.2f), halves = losses_of(2, 2, 0.2f),
             none = losses_of(4, 1, 0);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(halves[i], whole[i], 1e-5 * whole[i]);
    EXPECT_GT(std::abs(none[i] - whole[i]), 1e-4 * whole[i]);
  }
}

/// The matrix is a meaningful test only if the smaller budgets make more chunks move.
TEST(Identity, SmallerBudgetsMoveMore) {
  for (const DType dtype : {DType::BF16, DType::F32}) {
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, dtype);
    TrainingCase run{.dtype = dtype, .accumulation = 2};
    const Preparation resident = prepare_case(model, run);
    run.memory = Memory::Between;
    const Preparation between = prepare_case(model, run);
    run.memory = Memory::Smallest;
    const Preparation smallest = prepare_case(model, run);
    EXPECT_GT(between.plan.loaded_bytes, resident.plan.loaded_bytes);
    EXPECT_GT(smallest.plan.loaded_bytes, 3 * resident.plan.loaded_bytes);
    EXPECT_TRUE(resident.plan.stored_sums.empty());
    EXPECT_FALSE(smallest.plan.stored_sums.empty());
    EXPECT_LT(2 * smallest.num_blocks, resident.num_blocks);
  }
}

/// Likewise, activations must leave the device in the cases that offload them.
TEST(Identity, OffloadedActivationsAreStored) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  TrainingCase run{.memory = Memory::Smallest};
  const Preparation stay = prepare_case(model, run);
  run.activations = ActivationPlacement::Offload;
  const Preparation leave = prepare_case(model, run);
  EXPECT_TRUE(stay.plan.stored_activations.empty());
  EXPECT_FALSE(leave.plan.stored_activations.empty());
  EXPECT_LT(leave.num_blocks, stay.num_blocks);
}

TEST(Identity, EvaluationBetweenSteps) {
  IdentityCheck check;
  TrainingCase run{.accumulation = 2, .evaluation_batches = 2};
  for (const Memory memory : {Memory::Smallest, Memory::Between}) {
    for (const Recompute& recompute : {kRecomputeNone, kRecomputeEach}) {
      run.memory = memory;
      run.recompute = recompute;
      run.num_threads = 2;
      check.run(run);
    }
  }
}

/// Likewise, weights or state must stay on the device in the cases that request it.
TEST(Identity, WeightsOrStateStayBetweenSteps) {
  for (const bool clip : {false, true}) {
    for (const Memory memory : {Memory::Resident, Memory::Between, Memory::Smallest}) {
      const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
      TrainingCase run{
          .clip = clip, .accumulation = 2, .memory = memory, .between = Between::State};
      EXPECT_GE(prepare_case(model, run).plan.count(&ChunkRecord::is_on_device), 2u)
          << to_string(run);
      run.between = Between::Weights;
      const Plan plan = prepare_case(model, run).plan;
      EXPECT_EQ(plan.count(&ChunkRecord::is_on_device), 0u);
      const bool room = !clip && memory != Memory::Smallest;
      EXPECT_EQ(plan.count(&ChunkRecord::ends_on_device) > 0, room) << to_string(run);
    }
  }
}

TEST(Identity, EvaluationBetweenStepsThatKeepWeightsOrState) {
  IdentityCheck check;
  for (const Between between : {Between::Weights, Between::State}) {
    for (const bool clip : {false, true}) {
      check.run({.clip = clip,
                 .memory = Memory::Between,
                 .num_threads = 2,
                 .between = between,
                 .evaluation_batches = 1});
    }
  }
}

TEST(Identity, EvaluationDoesNotChangeTraining) {
  TrainingCase run{.accumulation = 2, .memory = Memory::Smallest};
  const Outcome alone = train(run).outcome;
  run.evaluation_batches = 2;
  Outcome evaluated = train(run).outcome;
  EXPECT_EQ(evaluated.evaluations.size(), run.num_steps);
  evaluated.evaluations.clear();
  EXPECT_TRUE(evaluated == alone) << to_string(evaluated) << to_string(alone);
}

/// With slow copies, loads and stalls happen in another order than at memory speed.
TEST(Identity, EmulatedLink) {
  IdentityCheck check;
  for (const bool clip : {false, true}) {
    for (const Memory memory : {Memory::Smallest, Memory::Resident}) {
      check.run({.clip = clip,
                 .accumulation = 2,
                 .memory = memory,
                 .num_threads = 2,
                 .link_bytes_per_s = 150e6,
                 .num_steps = 2});
    }
  }
}

}  // namespace
}  // namespace ebb::test
