// The ranks of a machine load weights together (scheduler/plan/split_loads.h): the bits are those
// of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_ranks.h"
#include "scheduler/plan/split_loads.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/planted.h"

namespace ebb::test {
namespace {

TEST(PartOfLoad, PartsOfAMachineAreTheWhole) {
  for (const size_t bytes :
       {size_t{2}, size_t{256}, size_t{1000}, size_t{4'098}, size_t{1} << 20}) {
    for (const uint32_t per_machine : {1u, 2u, 3u, 8u}) {
      const RankPlace place{0, 2 * per_machine, 2};
      size_t end = 0;
      for (uint32_t rank = per_machine; rank < 2 * per_machine; ++rank) {
        const BytePart part = part_of_load(bytes, place, rank);
        EXPECT_EQ(part.first, end);
        EXPECT_TRUE(part.first % 256 == 0 || part.count == 0);
        EXPECT_LE(part.count, part_slot_bytes(bytes, place));
        const BytePart same = part_of_load(bytes, place, rank - per_machine);
        EXPECT_EQ(part.first, same.first);
        EXPECT_EQ(part.count, same.count);
        end += part.count;
      }
      EXPECT_EQ(end, bytes);
    }
  }
}

const TrainingCase kSplitLoads{.accumulation = 4,
                               .memory = Memory::Smallest,
                               .order = MicroBatchOrder::Vertical,
                               .num_steps = 2,
                               .num_ranks = 2,
                               .splits_loads = true};

uint32_t num_parts(const TrainingCase& run, uint32_t rank = 0) {
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  return static_cast<uint32_t>(
      std::ranges::count_if(prepare_case(model, run, rank).plan.ops, is_load_part));
}

/// For ThreadSanitizer.
TEST(RankRaces, ThereAreNoneInSplitLoads) {
  IdentityCheck check;
  for (const bool clip : {true, false}) {
    TrainingCase run = kSplitLoads;
    run.clip = clip;
    run.between = clip ? Between::State : Between::Weights;
    run.sums_on_devices = clip;
    run.evaluation_batches = 1;
    EXPECT_GT(num_parts(run), 2 * kPartSlots);
    check.run(run);
  }
}

TEST(SplitLoads, GiveTheBitsOfOneRank) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 6,
                              .evaluation_batches = 2,
                              .dropout = 0.2f,
                              .num_ranks = 3,
                              .splits_loads = true,
                              .groups = 3});
}

TEST(SplitLoads, GiveTheBitsOfOneRankForEachTypeAndUpdate) {
  IdentityCheck check;
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    for (const UpdateOrder update : {UpdateOrder::Wait, UpdateOrder::Overlap}) {
      for (const Between between : {Between::Nothing, Between::State, Between::Weights}) {
        TrainingCase run = kSplitLoads;
        run.dtype = dtype;
        run.update = update;
        run.clip = between != Between::Weights;
        run.between = between;
        run.sums_on_devices = between == Between::State;
        check.run(run);
      }
    }
  }
  TrainingCase delayed = kSplitLoads;
  delayed.delayed_updates = true;
  check.run(delayed);
}

/// Each rank fetches only its part, or one rank of each machine fetches a chunk for all.
TEST(SplitLoads, GiveTheBitsOfOneRankOnSeveralMachines) {
  IdentityCheck check;
  for (const bool copies_weights : {false, true}) {
    for (const bool clip : {false, true}) {
      TrainingCase run = kSplitLoads;
      run.clip = clip;
      run.num_ranks = 4;
      run.num_machines = 2;
      run.copies_weights = copies_weights;
      run.chains_sums = clip;
      run.between = clip ? Between::Nothing : Between::Weights;
      run.memory = clip ? Memory::Smallest : Memory::Between;
      check.run(run);
    }
  }
}

/// Each byte of weights is read once for all ranks of a machine, and fetched once.
TEST(SplitLoads, AreDividedAmongTheRanks) {
  for (const uint32_t num_machines : {1u, 2u}) {
    TrainingCase run = kSplitLoads;
    run.num_ranks = 2 * num_machines;
    run.num_machines = num_machines;
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    TrainingCase whole = run;
    whole.splits_loads = false;
    size_t parts = 0, fetched = 0, fetched_whole = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Plan plan = prepare_case(model, run, rank).plan;
      EXPECT_EQ(plan.gathered_bytes, prepare_case(model, run, 0).plan.gathered_bytes);
      parts += plan.part_bytes;
      fetched += plan.fetched_bytes;
      fetched_whole += prepare_case(model, whole, rank).plan.fetched_bytes;
    }
    EXPECT_EQ(parts, prepare_case(model, run, 0).plan.gathered_bytes);
    EXPECT_EQ(2 * fetched, fetched_whole);
    EXPECT_EQ(fetched > 0, num_machines > 1);
  }
}

// ---- What the planner decides

Schedule schedule_of_ranks(uint32_t num_ranks, uint32_t num_micro_batches, double peer_bytes_per_s,
                           bool peer_access = true) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  const Machine machine{.flops_per_s = 1e12,
                        .load_bytes_per_s = 1e9,
                        .store_bytes_per_s = 1e9,
                        .peer_bytes_per_s = peer_bytes_per_s,
                        .update_bytes_per_s = 1e10};
  const TrainerOptions options{.chunk_bytes = kPieceElements * 2,
                               .gradient_accumulation = num_micro_batches};
  return prepare(model, options, {.place = {0, num_ranks, 1}, .peer_access = peer_access}, machine)
      .schedule;
}

TEST(SplitLoads, AreChosenIfDevicesAreConnectedByMoreThanLinks) {
  EXPECT_TRUE(schedule_of_ranks(2, 4, 1e10).splits_loads);
  EXPECT_TRUE(schedule_of_ranks(2, 4, 1.1e9).splits_loads);
  EXPECT_FALSE(schedule_of_ranks(2, 4, 0.9e9).splits_loads);
  EXPECT_FALSE(schedule_of_ranks(4, 4, 0.9e9).splits_loads);
  // The driver says that devices can read each other's memory, but the rate is not known.
  EXPECT_TRUE(schedule_of_ranks(2, 4, 0).splits_loads);
  EXPECT_FALSE(schedule_of_ranks(2, 4, 0, false).splits_loads);
  EXPECT_FALSE(schedule_of_ranks(2, 4, 1e10, false).splits_loads);
}

/// A device budget that has no room for part slots works without them.
TEST(SplitLoads, AreLeftOutIfTheyDoNotFit) {
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  TrainerOptions options{.chunk_bytes = kPieceElements * 2, .gradient_accumulation = 4};
  const Machine machine{.flops_per_s = 1e12,
                        .load_bytes_per_s = 1e9,
                        .store_bytes_per_s = 1e9,
                        .peer_bytes_per_s = 1e10,
                        .update_bytes_per_s = 1e10};
  Budgets budgets{.device = {.num_threads = 1}, .place = {0, 2, 1}, .peer_access = true};
  options.schedule.splits_loads = true;
  const size_t with = prepare(model, options, budgets, machine).smallest_device_bytes;
  options.schedule.splits_loads = false;
  const size_t without = prepare(model, options, budgets, machine).smallest_device_bytes;
  EXPECT_EQ(with - without, 3 * options.chunk_bytes);
  options.schedule.splits_loads = {};
  for (const size_t memory : {without, with - 1, with}) {
    budgets.device_memory = memory;
    const Preparation chosen = prepare(model, options, budgets, machine);
    EXPECT_EQ(chosen.schedule.splits_loads, memory == with);
    EXPECT_EQ(chosen.smallest_device_bytes, without);
  }
}

/// Ranks with unequal work load other weights at other times.
TEST(SplitLoads, NeedEqualWork) {
  EXPECT_FALSE(schedule_of_ranks(2, 5, 1e10).splits_loads);
  EXPECT_FALSE(schedule_of_ranks(3, 4, 1e10).splits_loads);
  TrainingCase run = kSplitLoads;
  run.accumulation = 5;
  try {
    num_parts(run);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string_view(error.what()).find("the schedule asks for split loads"),
              std::string_view::npos)
        << error.what();
  }
}

/// A rank that computes more of an evaluation has the same blocks, so it loads the same weights.
TEST(SplitLoads, AreTheSameOnAllRanksWithAnyEvaluation) {
  const auto parts_of = [](uint32_t num_evaluated, uint32_t rank) {
    TrainingCase run = kSplitLoads;
    run.memory = Memory::Between;
    run.between = Between::Nothing;
    run.evaluation_batches = num_evaluated;
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    std::vector<uint32_t> chunks;
    for (const Op& op : prepare_case(model, run, rank).plan.ops) {
      if (is_load_part(op)) chunks.push_back(op.chunk.index);
    }
    return chunks;
  };
  for (const uint32_t num_evaluated : {0u, 1u, 3u, 9u}) {
    EXPECT_EQ(parts_of(num_evaluated, 0), parts_of(num_evaluated, 1)) << num_evaluated;
  }
}

// ---- Planted: the plan of rank 1 is damaged

/// Trains on two ranks. `damage` changes the preparation of rank 1. The link of rank 0 is slow, or
/// its model is late.
uint64_t hash_of_split_loads(bool has_slow_link, const std::function<void(Preparation&)>& damage) {
  ThreadRanks ranks(2);
  uint64_t hashes[2] = {};
  const auto train_rank = [&](uint32_t rank) {
    TrainingCase run = kSplitLoads;
    if (rank == 0 && has_slow_link) run.link_bytes_per_s = 3e7;
    const Gpt2 gpt(run.model, kMicroBatchSize, run.length, run.dtype);
    LateModel model(gpt);
    Preparation prepared = prepare_case(model, run, rank);
    if (rank == 1) damage(prepared);
    model.pause_ms = rank == 0 && !has_slow_link ? 20 : 0;
    hashes[rank] = train(model, prepared, run, {}, &ranks.rank(rank)).outcome.hash;
  };
  std::jthread other([&] { train_rank(1); });
  train_rank(0);
  other.join();
  return hashes[0];
}

/// Rank 1 gathers the parts of rank 0 before they are there, or loads parts to slots that rank 0
/// has still to read.
TEST(PlantedRanks, AMissingWaitOfASplitLoadChangesBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer reports it";
#endif
  const uint64_t whole = hash_of_split_loads(false, [](Preparation&) {});
  const auto drop_waits = [](bool (*is)(const Op&)) {
    return [is](Preparation& p) {
      for (Op& op : p.plan.ops) {
        if (op.split == kNone || !is(op)) continue;
        for (OpIndex& wait : std::span(p.plan.waits).subspan(op.first_wait, op.num_waits)) {
          if (p.plan.ops[wait].kind == OpKind::Receive && p.plan.ops[wait].split != kNone) {
            wait = OpIndex(0);
          }
        }
      }
    };
  };
  EXPECT_NE(hash_of_split_loads(true, drop_waits(is_gather)), whole);
  EXPECT_NE(hash_of_split_loads(false, drop_waits(is_load_part)), whole);
}

}  // namespace
}  // namespace ebb::test
