// Sums of groups that pass from machine to machine (scheduler/plan/running_sums.h): the bits are
// those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "model_zoo/gpt2.h"
#include "scheduler/plan/running_sums.h"
#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

TEST(RankRaces, ThereAreNoneInChainsOfSums) {
  IdentityCheck check;
  for (const bool clip : {true, false}) {
    check.run({.clip = clip,
               .accumulation = 4,
               .memory = clip ? Memory::Smallest : Memory::Between,
               .num_threads = 2,
               .order = MicroBatchOrder::Vertical,
               .between = clip ? Between::Nothing : Between::Weights,
               .num_steps = 2,
               .num_ranks = 4,
               .num_machines = 2,
               .copies_weights = !clip,
               .chains_sums = true});
  }
}

/// Ranks per machine: 1, 2, 1 and 2.
TEST(ChainedSums, GiveTheBitsOfOneRank) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 3,
                              .evaluation_batches = 2,
                              .dropout = 0.2f,
                              .num_ranks = 2,
                              .num_machines = 2,
                              .chains_sums = true});
  check_few_schedules(check, {.accumulation = 8,
                              .num_ranks = 4,
                              .num_machines = 2,
                              .copies_weights = true,
                              .chains_sums = true,
                              .groups = 5});
  for (const uint32_t num_ranks : {3u, 6u}) {
    check.run({.clip = num_ranks == 3,
               .accumulation = 6,
               .memory = Memory::Smallest,
               .between = num_ranks == 3 ? Between::Nothing : Between::Weights,
               .evaluation_batches = 3,
               .num_ranks = num_ranks,
               .num_machines = 3,
               .chains_sums = true});
  }
}

/// Weights and running sums pass from machine to machine. Ranks per machine: 2 and 1.
TEST(ChainedSums, OfManyMachinesGiveTheBitsOfOneRank) {
  IdentityCheck check;
  check.run({.accumulation = 12,
             .memory = Memory::Smallest,
             .num_ranks = 12,
             .num_machines = 6,
             .copies_weights = true,
             .chains_sums = true});
  check.run({.clip = false,
             .accumulation = 8,
             .memory = Memory::Between,
             .order = MicroBatchOrder::Vertical,
             .between = Between::Weights,
             .num_ranks = 8,
             .num_machines = 8,
             .chains_sums = true});
}

/// The devices of a machine add its groups.
TEST(ChainedSums, OnDevicesGiveTheBitsOfOneRank) {
  IdentityCheck check;
  for (const DType group_dtype : {DType::F32, DType::BF16}) {
    check_few_schedules(check, {.accumulation = 4,
                                .num_ranks = 4,
                                .num_machines = 2,
                                .chains_sums = true,
                                .sums_on_devices = true,
                                .group_dtype = group_dtype});
  }
}

/// Running sums are fp32, also of sums that were rounded.
TEST(ChainedSums, OfRoundedGroupsGiveTheBitsOfOneRank) {
  IdentityCheck check;
  for (const uint32_t num_machines : {2u, 3u}) {
    check.run({.clip = num_machines == 2,
               .accumulation = 12,
               .memory = Memory::Smallest,
               .order = MicroBatchOrder::Vertical,
               .num_steps = 2,
               .num_ranks = 6,
               .num_machines = num_machines,
               .chains_sums = true,
               .groups = 7,
               .group_dtype = DType::BF16});
  }
}

TEST(ChainedSums, OfOtherTypesAndUpdatesGiveTheBitsOfOneRank) {
  IdentityCheck check;
  const TrainingCase run{.accumulation = 4,
                         .memory = Memory::Smallest,
                         .num_ranks = 4,
                         .num_machines = 2,
                         .chains_sums = true};
  for (const DType dtype : {DType::F32, DType::F16}) {
    TrainingCase other = run;
    other.dtype = dtype;
    check.run(other);
  }
  TrainingCase delayed = run;
  delayed.num_steps = 4;
  delayed.delayed_updates = true;
  check.run(delayed);
  TrainingCase speculated = run;
  speculated.update = UpdateOrder::Speculate;
  speculated.max_norm = 1e9f;
  check.run(speculated);
}

// ---- When sums are chained

Preparation prepared_with(TrainingCase run, std::optional<bool> chains_sums, uint32_t rank = 0) {
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  TrainerOptions options = run.options();
  options.schedule.chains_sums = chains_sums;
  return prepare(model, options, {.place = {rank, run.num_ranks, run.num_machines}});
}

struct Machines {
  uint32_t num_ranks, num_machines, groups;
  DType group_dtype = DType::F32;
};
bool chains(const Machines& m) {
  const TrainingCase run{.accumulation = 16,
                         .num_ranks = m.num_ranks,
                         .num_machines = m.num_machines,
                         .groups = m.groups,
                         .group_dtype = m.group_dtype};
  const bool all = prepared_with(run, {}).division.chains_sums;
  for (uint32_t rank = 1; rank < m.num_ranks; ++rank) {
    EXPECT_EQ(prepared_with(run, {}, rank).division.chains_sums, all) << rank;
  }
  return all;
}

/// Of P parameters, the owners of one of two machines copy g P / 2 sums of g groups of the other
/// machine. In a chain, the second machine copies P running sums. One of four machines copies 3 g P
/// / 4, or P running sums and P / 4 sums of all groups.
TEST(ChainedSums, AreChosenWhereAMachineReceivesLess) {
  EXPECT_FALSE(chains({2, 2, 2}));
  EXPECT_FALSE(chains({2, 2, 4}));  // the same
  EXPECT_TRUE(chains({2, 2, 5}));
  EXPECT_TRUE(chains({4, 2, 8}));
  EXPECT_FALSE(chains({4, 2, 8, DType::BF16}));  // the same
  EXPECT_TRUE(chains({4, 2, 16, DType::BF16}));
  EXPECT_FALSE(chains({4, 4, 6}));
  EXPECT_TRUE(chains({4, 4, 7}));
  EXPECT_FALSE(chains({4, 1, 16})) << "one machine";
}

/// docs/ranks.md, "Several machines": a machine receives all running sums, and the totals of its
/// own chunks, except the first and the last one.
TEST(ChainedSums, AreReceivedOnceByEachMachine) {
  const TrainingCase run{.accumulation = 6, .num_ranks = 6, .num_machines = 3};
  std::array<size_t, 3> received{}, of_owners{};
  size_t all = 0;
  for (uint32_t rank = 0; rank < run.num_ranks; ++rank) {
    const Preparation p = prepared_with(run, true, rank);
    for (const Op& op : p.plan.ops) {
      if (op.kind != OpKind::FetchSum && op.kind != OpKind::RoundTotal) continue;
      const size_t bytes = p.layout->running_sum_bytes(ChunkIndex(op.chunk.index));
      if (op.kind == OpKind::FetchSum) received[rank / 2] += bytes;
      if (op.kind == OpKind::RoundTotal) of_owners[rank / 2] += bytes;
    }
  }
  for (const size_t bytes : of_owners) all += bytes;
  EXPECT_GT(std::ranges::min(of_owners), 0u);
  EXPECT_EQ(received[0], of_owners[0]);
  EXPECT_EQ(received[1], all + of_owners[1]);
  EXPECT_EQ(received[2], all);
}

/// The sums of a rank wait for the ranks of its machine only, so they need fewer slots; in exchange
/// there are slots for running sums, each for a whole chunk.
TEST(ChainedSums, TakeTheMemoryOfTheLedger) {
  const TrainingCase run{.accumulation = 8, .num_ranks = 8, .num_machines = 4};
  const Preparation direct = prepared_with(run, false), chained = prepared_with(run, true);
  const auto host_bytes = [](const Preparation& p, std::string_view name) {
    return p.ledger.bytes(name, Tier::Host);
  };
  EXPECT_LT(chained.plan.sum_slots, direct.plan.sum_slots);
  EXPECT_LT(host_bytes(chained, "sums of groups"), host_bytes(direct, "sums of groups"));
  EXPECT_EQ(host_bytes(chained, "copied sums"), 0u);
  EXPECT_EQ(host_bytes(direct, "running sums"), 0u);
  const Layout& layout = *chained.layout;
  const size_t of_tied_weight = 2 * layout.chunk_elements() * sizeof(float);
  EXPECT_EQ(layout.running_sum_bytes(ChunkIndex(0)), of_tied_weight);
  EXPECT_EQ(host_bytes(chained, "running sums"), kRunningSlots * of_tied_weight);
}

}  // namespace
}  // namespace ebb::test
