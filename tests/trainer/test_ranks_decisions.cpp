// What the planner decides for several ranks: the same on all, so that their plans fit together.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/validation_ranks.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

/// Loads of resident weights after their early updates wait for owners, and owners wait for the
/// chain.
TEST(RankChains, DoNotWaitForEachOther) {
  struct Place {
    uint32_t num_machines, per_machine;
  };
  for (const Place place : {Place{2, 2}, {4, 5}, {6, 2}, {8, 1}, {9, 1}}) {
    const uint32_t num_ranks = place.num_machines * place.per_machine;
    for (const bool copies_weights : {false, true}) {
      for (const auto& [clip, splits_loads] :
           {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        if (splits_loads && place.per_machine == 1) continue;
        TrainingCase run{.clip = clip,
                         .accumulation = num_ranks,
                         .memory = Memory::Between,
                         .order = MicroBatchOrder::Vertical,
                         .between = Between::Weights,
                         .num_ranks = num_ranks,
                         .num_machines = place.num_machines,
                         .copies_weights = copies_weights,
                         .chains_sums = true,
                         .splits_loads = splits_loads};
        run.model.num_layers = 24;
        const Gpt2 model(run.model, kMicroBatchSize, kLength, DType::BF16);
        std::vector<Preparation> prepared;
        for (uint32_t rank = 0; rank < num_ranks; ++rank) {
          prepared.push_back(prepare_case(model, run, rank));
        }
        if (!clip) {
          EXPECT_GT(prepared[0].plan.count(&ChunkRecord::ends_on_device), 4u);
        }
        std::vector<const Plan*> plans;
        for (const Preparation& p : prepared) plans.push_back(&p.plan);
        EXPECT_EQ(validate_ranks(plans), std::vector<std::string>{}) << run;
      }
    }
  }
}

/// With host memory for them, ranks whose network is slow share what they fetch.
TEST(RankCopies, AreMadeIfThereIsRoom) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  const Machine machine{.flops_per_s = 1e12,
                        .load_bytes_per_s = 1e9,
                        .store_bytes_per_s = 1e9,
                        .network_bytes_per_s = 1e7,
                        .update_bytes_per_s = 1e10};
  TrainerOptions options{.chunk_bytes = kPieceElements * 2,
                         .gradient_accumulation = 4,
                         .schedule = {.micro_batch_order = MicroBatchOrder::Vertical,
                                      .recompute = kRecomputeEach,
                                      .activations = ActivationPlacement::Device,
                                      .update = UpdateOrder::Overlap}};
  Budgets budgets{.device = {.num_threads = 1}, .place = {0, 4, 2}};
  budgets.device_memory = prepare(model, options, budgets, machine).smallest_device_bytes;
  const Preparation with = prepare(model, options, budgets, machine);
  EXPECT_TRUE(with.schedule.copies_weights);
  options.schedule.copies_weights = false;
  const Preparation without = prepare(model, options, budgets, machine);
  const size_t bytes = with.ledger.total(Tier::Host), fewer = without.ledger.total(Tier::Host);
  EXPECT_GT(bytes, fewer);
  EXPECT_GT(without.plan.fetched_bytes, with.plan.fetched_bytes);
  options.schedule.copies_weights = {};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    budgets.place.rank = rank;
    budgets.host_memory = 2 * bytes;
    EXPECT_TRUE(prepare(model, options, budgets, machine).schedule.copies_weights);
    budgets.host_memory = fewer + (bytes - fewer) / 2;
    EXPECT_FALSE(prepare(model, options, budgets, machine).schedule.copies_weights);
  }
}

/// [chunk] The times of the updates, which are the same on all of four ranks.
std::vector<UpdateTime> times_of_updates(bool clip, uint32_t speculated) {
  Gpt2Config config = small_gpt();
  config.num_layers = 8;
  const Gpt2 model(config, kMicroBatchSize, kLength, DType::BF16);
  TrainerOptions options =
      TrainingCase{.clip = clip,
                   .accumulation = 4,
                   .update = clip ? UpdateOrder::Speculate : UpdateOrder::Overlap,
                   .max_norm = 1e9f}
          .options();
  options.schedule.speculated_chunks = speculated;
  std::vector<UpdateTime> times;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    std::vector<UpdateTime> of_rank;
    for (const ChunkRecord& chunk : prepare(model, options, {.place = {rank, 4, 1}}).plan.chunks) {
      of_rank.push_back(chunk.update);
    }
    if (rank == 0) times = of_rank;
    EXPECT_EQ(of_rank, times);
  }
  return times;
}

/// By how much the owners differ in the number of updates with this time.
uint32_t difference_of_owners(const std::vector<UpdateTime>& times, UpdateTime time) {
  std::array<uint32_t, 4> num{};
  for (size_t c = 0; c < times.size(); ++c) num[c % 4] += times[c] == time;
  return std::ranges::max(num) - std::ranges::min(num);
}

/// Otherwise a rank with more updates before the end of the step would delay all others.
TEST(RankUpdates, AreDividedEquallyAmongOwners) {
  const std::vector<UpdateTime> unclipped = times_of_updates(false, 0);
  EXPECT_LE(difference_of_owners(unclipped, UpdateTime::Early), 2u);
  EXPECT_LE(difference_of_owners(unclipped, UpdateTime::Deferred), 2u);
  EXPECT_GT(std::ranges::count(unclipped, UpdateTime::Deferred), 8);
  const auto all = static_cast<uint32_t>(
      std::ranges::count(times_of_updates(true, UINT32_MAX), UpdateTime::Speculative));
  ASSERT_GT(all, 8u);
  for (const uint32_t speculated : {7u, all / 2, all}) {
    const std::vector<UpdateTime> times = times_of_updates(true, speculated);
    EXPECT_EQ(std::ranges::count(times, UpdateTime::Speculative), speculated);
    EXPECT_LE(difference_of_owners(times, UpdateTime::Speculative), 2u) << speculated;
  }
  EXPECT_EQ(times_of_updates(true, all), times_of_updates(true, UINT32_MAX));
}

/// Rank 2 has two micro-batches of the evaluation, the others one or none. All have the memory for
/// two, so they have the same blocks, and the state of as many chunks on their devices.
TEST(RankMemory, IsTheSameWhateverARankEvaluates) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  for (const uint32_t num_evaluated : {1u, 4u}) {
    const TrainingCase run{.accumulation = 3,
                           .order = MicroBatchOrder::Vertical,
                           .between = Between::State,
                           .evaluation_batches = num_evaluated,
                           .num_ranks = 3,
                           .sums_on_devices = true};
    const auto prepare_rank = [&](size_t device_memory, uint32_t rank) {
      return prepare(model, run.options(),
                     {.device_memory = device_memory, .place = {rank, 3, 1}, .peer_access = true});
    };
    const size_t chunk_bytes = run.options().chunk_bytes;
    const size_t smallest = prepare_rank(size_t{1} << 30, 0).smallest_device_bytes;
    uint32_t most_on_owners = 0;
    for (int i = 0; i < 40; ++i) {
      const size_t memory = smallest + i * chunk_bytes / 2;
      const Plan first = prepare_rank(memory, 0).plan;
      for (const uint32_t rank : {1u, 2u}) {
        const Plan plan = prepare_rank(memory, rank).plan;
        EXPECT_EQ(plan.num_blocks, first.num_blocks) << i;
        EXPECT_EQ(plan.chunks_that(&ChunkRecord::is_on_owner),
                  first.chunks_that(&ChunkRecord::is_on_owner));
      }
      most_on_owners = std::max(most_on_owners, first.count(&ChunkRecord::is_on_owner));
    }
    EXPECT_GE(most_on_owners, 6u);
    EXPECT_THROW(prepare_rank(smallest - 1, 2), PlanError);
  }
}

}  // namespace
}  // namespace ebb::test
