// Ranks that are simulated together: they wait for each other, and share host memory and cores.
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/plan/simulate.h"
#include "tests/scheduler/plan_cases.h"
#include "tests/scheduler/timed_plans.h"

namespace ebb {
namespace {

using test::Case;
using test::WrittenPlan;

// A chunk of weights has 131,072 bytes, or 65,536 elements. A call has 100 flops and 10 bytes.
constexpr double kChunk = 131072;
constexpr double kUpdated = 65536 * 26.0;  // bytes that an update reads and writes
constexpr double kUnlimited = 0;

/// A case of two chunks whose device has all of them, and what several ranks do with it.
class SimulateRanks : public testing::Test {
 protected:
  /// The time of a step of ranks with these plans.
  double seconds(std::initializer_list<const Plan*> plans, const Machine& machine) const {
    double most = 0;
    for (const Simulation& s : simulate_all(plans, machine)) most = std::max(most, s.seconds);
    return most;
  }
  std::vector<Simulation> simulate_all(std::initializer_list<const Plan*> plans,
                                       const Machine& machine) const {
    return simulate_ranks(steps(plans), machine);
  }
  Bound bound(std::initializer_list<const Plan*> plans, const Machine& machine) const {
    return lower_bound(steps(plans), machine, false);
  }
  std::vector<RankStep> steps(std::initializer_list<const Plan*> plans) const {
    std::vector<RankStep> steps;
    for (const Plan* plan : plans) steps.push_back({*plan, case_.trace, case_.layout});
    return steps;
  }

  /// Rank r of two owns chunk r.
  static Plan written(std::initializer_list<test::WrittenOp> ops) {
    Plan plan = WrittenPlan(ops).plan;
    plan.chunks.resize(2);
    plan.chunks[1].owner = 1;
    return plan;
  }
  static Op on_chunk(Op op, uint32_t chunk) {
    op.chunk = {Space::Weights, chunk};
    return op;
  }
  static Op run() {
    Op op = test::kRun;
    op.call = CallIndex(0);
    return op;
  }
  static Op send(Message message, uint32_t chunk) {
    return on_chunk({.kind = OpKind::Send, .stream = StreamKind::Send, .message = message}, chunk);
  }
  static Op receive(Message message, uint32_t chunk) {
    return on_chunk({.kind = OpKind::Receive,
                     .stream = StreamKind::Receive,
                     .message = message,
                     .sender = message == Message::Sums ? uint32_t{kNone} : chunk},
                    chunk);
  }

  /// Rank r of two owns chunk r.
  static Op fetch_of(uint32_t chunk) { return make_fetch({Space::Weights, chunk}, chunk); }

  const Case case_ = test::make_case_from_text("r0 r1", 2, 65536, 2);
  const Plan loads_ = written({{test::kLoad, {}}, {on_chunk(test::kLoad, 1), {}}});
  const Plan stores_ = written({{test::kStore, {}}});
  const Plan updates_ = written({{test::kUpdate, {}}});
  const Plan runs_ = written({{run(), {}}});
};

TEST_F(SimulateRanks, ARankWaitsForTheUpdateOfAnother) {
  // Rank 0 updates its chunk and tells rank 1, which loads it then.
  const Plan owner = written({{test::kUpdate, {}}, {send(Message::Weights, 0), {}, {0}}});
  const Plan other =
      written({{receive(Message::Weights, 0), {}}, {test::kLoad, {}, {0}}, {run(), {}, {1}}});
  // A rank has half of the threads, so the update takes 2 x 3 s. The load takes 1 s.
  const Machine machine{.load_bytes_per_s = kChunk, .update_bytes_per_s = kUpdated / 3};
  const std::vector<Simulation> s = simulate_all({&owner, &other}, machine);
  EXPECT_DOUBLE_EQ(s[0].seconds, 6);
  EXPECT_DOUBLE_EQ(s[1].seconds, 6 + 1);
  EXPECT_DOUBLE_EQ(s[1].ops[0].end_s, 6);
  // A rank alone does not wait.
  EXPECT_DOUBLE_EQ(simulate(other, case_.trace, case_.layout, machine).seconds, 1);
}

TEST_F(SimulateRanks, TheOwnerWaitsForTheSumsOfAllOthers) {
  const Plan owner = written({{receive(Message::Sums, 0), {}}, {test::kUpdate, {}, {0}}});
  const Plan soon = written({{send(Message::Sums, 0), {}}});
  const Plan late = written({{test::kStore, {}}, {send(Message::Sums, 0), {}, {0}}});
  const Machine machine{.store_bytes_per_s = kChunk / 5, .update_bytes_per_s = 3 * kUpdated};
  EXPECT_DOUBLE_EQ(seconds({&owner, &soon, &late}, machine), 5 + 1);
  EXPECT_DOUBLE_EQ(seconds({&owner, &late, &soon}, machine), 5 + 1);
  EXPECT_DOUBLE_EQ(seconds({&owner, &soon, &soon}, machine), 1);
}

TEST_F(SimulateRanks, AMessageThatNobodySendsIsAnError) {
  const Plan waits = written({{receive(Message::Added, 1), {}}});
  EXPECT_THROW(seconds({&waits, &loads_}, {}), LogicError);
}

TEST_F(SimulateRanks, LoadsThatSaturateHostMemoryTakeTwiceAsLong) {
  const auto time = [&](double host_bytes_per_s) {
    return seconds({&loads_, &loads_},
                   {.load_bytes_per_s = kChunk, .host_bytes_per_s = host_bytes_per_s});
  };
  EXPECT_DOUBLE_EQ(time(kUnlimited), 2);
  EXPECT_DOUBLE_EQ(time(2 * kChunk), 2);
  EXPECT_DOUBLE_EQ(time(kChunk), 4);
  EXPECT_DOUBLE_EQ(time(kChunk / 2), 8);
  // A link without a limit copies as fast as the host memory.
  EXPECT_DOUBLE_EQ(seconds({&loads_, &loads_}, {.host_bytes_per_s = kChunk}), 4);
  const Bound by_memory =
      bound({&loads_, &loads_}, {.load_bytes_per_s = kChunk, .host_bytes_per_s = kChunk});
  EXPECT_DOUBLE_EQ(by_memory.seconds, 4);
  EXPECT_STREQ(by_memory.bound_by, "host memory");
  EXPECT_DOUBLE_EQ(by_memory.load_s, 2);
}

TEST_F(SimulateRanks, LoadsStoresAndUpdatesShareHostMemory) {
  // Alone: two loads of 1 s each, a store of 1 s, an update of 2 s (1 s with all threads).
  Machine machine{
      .load_bytes_per_s = kChunk, .store_bytes_per_s = kChunk, .update_bytes_per_s = kUpdated};
  EXPECT_DOUBLE_EQ(seconds({&loads_, &stores_}, machine), 2);
  machine.host_bytes_per_s = 1.5 * kChunk;
  // Load and store at 3/4 of their speed, until the store ends after 4/3 s; then the second load
  // runs alone.
  EXPECT_DOUBLE_EQ(seconds({&loads_, &stores_}, machine), 4.0 / 3 + 1);
  // The update would use 6.5 chunks per second, but the host memory moves 3.75. So with the load
  // both run at 3.75 / 4.75 of their speed. All in all it moves 15 chunks.
  machine.host_bytes_per_s = 3.75 * kChunk;
  const std::vector<Simulation> s = simulate_all({&loads_, &updates_}, machine);
  EXPECT_DOUBLE_EQ(s[0].seconds, 2 * 4.75 / 3.75);
  EXPECT_DOUBLE_EQ(s[1].seconds, 15 / 3.75);
}

TEST_F(SimulateRanks, KernelsUseNoHostMemory) {
  const Machine machine{.flops_per_s = 50, .load_bytes_per_s = kChunk, .host_bytes_per_s = kChunk};
  EXPECT_DOUBLE_EQ(seconds({&loads_, &runs_}, machine), 2);
}

/// Rank 0 updates its chunk on its device; both ranks copy the weights to a block. No host memory
/// is used, so that of this machine slows nothing down.
TEST_F(SimulateRanks, StateOnADeviceIsUpdatedAndReadThere) {
  const Op gather = make_move({Space::Weights, 0}, Tier::Peer, Tier::Device);
  Op sums = on_chunk({.kind = OpKind::AddGroups, .stream = StreamKind::Update}, 0);
  Plan owner = written({{sums, {}}, {test::kUpdate, {}}, {gather, {}, {1}}});
  Plan other = written({{gather, {}}, {run(), {}, {0}}});
  for (Plan* const plan : {&owner, &other}) {
    plan->division = {
        .place = {0, 2, 1}, .num_micro_batches = 2, .num_groups = 2, .sums_on_devices = true};
    plan->chunks[0].tier = Tier::Peer;
  }
  other.chunks[0].is_mine = false;
  other.division.place.rank = 1;
  // Sums of 4 bytes for each parameter are 2 chunks: those of the other rank take 2 / 4 s to read,
  // and those of both 3 * 4 / 24 s to add.
  const Machine machine{.device_bytes_per_s = 24 * kChunk,
                        .peer_bytes_per_s = 4 * kChunk,
                        .update_bytes_per_s = 1,
                        .host_bytes_per_s = 1};
  const std::vector<Simulation> s = simulate_all({&owner, &other}, machine);
  EXPECT_DOUBLE_EQ(s[0].ops[0].end_s, 0.5);
  const double updated_s = 0.5 + kUpdated / (24 * kChunk);
  EXPECT_DOUBLE_EQ(s[0].ops[1].end_s, updated_s);
  EXPECT_DOUBLE_EQ(s[0].ops[2].end_s, updated_s + 2.0 / 24);
  EXPECT_DOUBLE_EQ(s[1].ops[0].end_s, 0.25);
  EXPECT_EQ(bound({&owner, &other}, machine).host_memory_s, 0);
  // In host memory the update alone would take longer than everything above.
  owner.chunks[0].tier = Tier::Host;
  EXPECT_GT(simulate_all({&owner, &other}, machine)[0].seconds, kUpdated);
}

TEST_F(SimulateRanks, RanksShareTheCores) {
  // A call takes 1 s with all cores.
  const Machine machine{.flops_per_s = 100, .update_bytes_per_s = kUpdated, .shared_cores = true};
  // A rank has half of the threads, whether or not the other half is idle.
  EXPECT_DOUBLE_EQ(seconds({&runs_, &runs_}, machine), 2);
  EXPECT_DOUBLE_EQ(seconds({&runs_, &stores_}, machine), 2);
  // Two calls and two updates, of which each takes 1 s with all cores.
  const Plan both = written({{run(), {}}, {test::kUpdate, {}}});
  EXPECT_DOUBLE_EQ(seconds({&both, &both}, machine), 4);
  const Bound least = bound({&both, &both}, machine);
  EXPECT_DOUBLE_EQ(least.seconds, 4);
  EXPECT_STREQ(least.bound_by, "compute");
  // The call and the update of one rank use both halves.
  EXPECT_DOUBLE_EQ(seconds({&both, &stores_}, machine), 2);
}

TEST_F(SimulateRanks, CopiesOfAllRanksUsePartOfTheCores) {
  // A load takes 1 s, and a quarter of all cores meanwhile. A call takes 2 s with half of them.
  const Machine machine{.flops_per_s = 100,
                        .load_bytes_per_s = kChunk,
                        .shared_cores = true,
                        .copy_bytes_per_s = 4 * kChunk};
  const Plan both = written({{run(), {}}, {test::kLoad, {}}});
  // During the loads half of the cores are left: 0.5 s of each call is done. Then 1.5 s are left.
  EXPECT_DOUBLE_EQ(seconds({&both, &both}, machine), 1 + 1.5);
}

/// The plans of `num_ranks` ranks on as many machines as `num_machines`; rank r has the operations
/// `ops(r)`, and owns chunk r.
template <class Ops>
std::vector<Plan> on_machines(uint32_t num_ranks, uint32_t num_machines, const Ops& ops) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    Plan& plan = plans.emplace_back(ops(rank));
    plan.division = {.place = {rank, num_ranks, num_machines},
                     .num_micro_batches = num_ranks,
                     .num_groups = num_ranks};
  }
  return plans;
}

TEST_F(SimulateRanks, FetchesShareWhatTheirMachineReceives) {
  const Machine machine{.network_bytes_per_s = kChunk};
  const Plan fetches = written({{fetch_of(0), {}}});
  const Plan nothing = written({});
  // Ranks 2 and 3 are on another machine than rank 0, which owns the chunk.
  const auto four = on_machines(4, 2, [&](uint32_t rank) { return rank >= 2 ? fetches : nothing; });
  EXPECT_DOUBLE_EQ(seconds({&four[0], &four[1], &four[2], &four[3]}, machine), 2);
  const Bound least = bound({&four[0], &four[1], &four[2], &four[3]}, machine);
  EXPECT_DOUBLE_EQ(least.seconds, 2);
  EXPECT_STREQ(least.bound_by, "network");
  EXPECT_DOUBLE_EQ(least.network_s, 2);
  const auto one = on_machines(4, 2, [&](uint32_t rank) { return rank == 2 ? fetches : nothing; });
  EXPECT_DOUBLE_EQ(seconds({&one[0], &one[1], &one[2], &one[3]}, machine), 1);
  EXPECT_DOUBLE_EQ(seconds({&one[0], &one[1], &one[2], &one[3]}, {}), 0);
}

TEST_F(SimulateRanks, FetchesShareWhatTheMachineOfTheOwnerSends) {
  const Machine machine{.network_bytes_per_s = kChunk};
  const Plan nothing = written({});
  const auto fetch = [&](uint32_t chunk) { return written({{fetch_of(chunk), {}}}); };
  // Ranks 1 and 2, each on a machine of its own, fetch from rank 0.
  const auto same = on_machines(3, 3, [&](uint32_t rank) { return rank > 0 ? fetch(0) : nothing; });
  EXPECT_DOUBLE_EQ(seconds({&same[0], &same[1], &same[2]}, machine), 2);
  EXPECT_DOUBLE_EQ(bound({&same[0], &same[1], &same[2]}, machine).seconds, 1);
  // A machine sends and receives at the same time.
  const auto swap = on_machines(2, 2, [&](uint32_t rank) { return fetch(1 - rank); });
  EXPECT_DOUBLE_EQ(seconds({&swap[0], &swap[1]}, machine), 1);
}

TEST_F(SimulateRanks, AnAdditionReceivesTheSumsOfOtherMachines) {
  Op add = test::kUpdate;
  add.kind = OpKind::AddGroups;
  // It reads four fp32 sums of 65,536 elements and writes a bf16 gradient. Two of the sums are on
  // the other machine: these are four chunks.
  const auto ranks = on_machines(4, 2, [&](uint32_t rank) {
    return rank == 0 ? written({{add, {}}}) : written({});
  });
  const auto time = [&](const Machine& machine) {
    return seconds({&ranks[0], &ranks[1], &ranks[2], &ranks[3]}, machine);
  };
  EXPECT_DOUBLE_EQ(time({.network_bytes_per_s = kChunk}), 4);
  // A rank has half of the threads. The sums come first, then they are added.
  const Machine adds{.network_bytes_per_s = kChunk, .update_bytes_per_s = 65536 * 18.0};
  EXPECT_DOUBLE_EQ(time(adds), 4 + 2);
  // Each byte from the network is four bytes of host memory.
  EXPECT_DOUBLE_EQ(time({.host_bytes_per_s = kChunk}), 9 + 16);
}

/// The plans of two machines with one rank each, whose sums are chained. Only `of_rank` has these
/// operations.
template <class Written>
std::vector<Plan> chained(uint32_t of_rank, const Written& with_operations, const Plan& nothing) {
  auto plans = on_machines(
      2, 2, [&](uint32_t rank) { return rank == of_rank ? with_operations() : nothing; });
  for (Plan& plan : plans) plan.division.chains_sums = true;
  return plans;
}

/// A running sum of 65,536 elements is two chunks, and so are the stored sums of a machine.
TEST_F(SimulateRanks, ARankOfAChainAddsTheGroupsOfItsMachine) {
  const Op add = on_chunk({.kind = OpKind::AddGroups, .stream = StreamKind::Update}, 0);
  Op fetch = on_chunk({.kind = OpKind::FetchSum, .stream = StreamKind::Fetch}, 0);
  fetch.sender = 0;
  const Op round = on_chunk({.kind = OpKind::RoundTotal, .stream = StreamKind::Update}, 0);
  const auto time = [&](uint32_t rank, const Op& op, const Machine& machine) {
    const auto plans = chained(
        rank,
        [&] {
          return written({{op, {}}});
        },
        written({}));
    return seconds({&plans[0], &plans[1]}, machine);
  };
  // The first rank reads its sums and writes a running sum. The second one also reads one.
  const Machine adds{.update_bytes_per_s = kChunk};
  EXPECT_DOUBLE_EQ(time(0, add, adds), 2 + 2);
  EXPECT_DOUBLE_EQ(time(1, add, adds), 2 + 2 + 2);
  EXPECT_DOUBLE_EQ(time(0, round, adds), 2 + 1);  // a bf16 gradient is a chunk
  const Machine network{.network_bytes_per_s = kChunk};
  EXPECT_DOUBLE_EQ(time(1, add, network), 0);
  EXPECT_DOUBLE_EQ(time(1, fetch, network), 2);
  // Each byte from the network is four bytes of host memory.
  EXPECT_DOUBLE_EQ(time(1, fetch, {.host_bytes_per_s = kChunk}), 8);
  EXPECT_DOUBLE_EQ(time(1, add, {.host_bytes_per_s = kChunk}), 6);
}

/// The GPU reads the running sum in host memory, and writes it there.
TEST_F(SimulateRanks, AGpuOfAChainCopiesTheRunningSum) {
  const Op add = on_chunk({.kind = OpKind::AddGroups, .stream = StreamKind::Update}, 0);
  const auto time = [&](uint32_t rank, const Machine& machine) {
    auto plans = chained(
        rank,
        [&] {
          return written({{add, {}}});
        },
        written({}));
    for (Plan& plan : plans) plan.division.sums_on_devices = true;
    return seconds({&plans[0], &plans[1]}, machine);
  };
  const Machine link{.load_bytes_per_s = kChunk, .store_bytes_per_s = kChunk / 4};
  EXPECT_DOUBLE_EQ(time(0, link), 2 * 4);
  EXPECT_DOUBLE_EQ(time(1, link), 2 + 2 * 4);
  EXPECT_DOUBLE_EQ(time(1, {.device_bytes_per_s = kChunk}), 2 + 2 * 2);
  EXPECT_DOUBLE_EQ(time(0, {.host_bytes_per_s = kChunk}), 2);
  EXPECT_DOUBLE_EQ(time(1, {.host_bytes_per_s = kChunk}), 4);
}

/// The plan of a rank that stands for all of several machines, which have one rank each.
Plan stands_for_all(Plan plan, uint32_t rank, uint32_t num_machines) {
  plan.division = {.place = {rank, num_machines, num_machines},
                   .num_micro_batches = num_machines,
                   .num_groups = num_machines,
                   .chains_sums = true};
  return plan;
}

/// The ranks of two machines add to the running sum after the second of four machines: each copies
/// two chunks and moves six.
TEST_F(SimulateRanks, TheLastOfAChainAddsLater) {
  const Op add = on_chunk({.kind = OpKind::AddGroups, .stream = StreamKind::Update}, 1);
  Op total = receive(Message::Added, 1);
  total.sender = 3;
  Op norms = receive(Message::Norms, 0);
  norms.sender = kNone;
  const Machine machine{
      .network_bytes_per_s = kChunk, .message_s = 0.5, .update_bytes_per_s = kChunk};
  for (const Op& waits : {total, norms}) {
    const Plan plan =
        stands_for_all(written({{add, {}}, {send(Message::Added, 1), {}, {0}}, {waits, {}}}), 1, 4);
    const Simulation s = simulate_all({&plan}, machine)[0];
    EXPECT_DOUBLE_EQ(s.ops[1].end_s, 6);
    EXPECT_DOUBLE_EQ(s.ops[2].end_s, 6 + 2 * (2 + 6 + 0.5) + 0.5) << name_of(waits.message);
  }
}

/// A machine is asked by one other at a time for copies, and by half of all for a load.
TEST_F(SimulateRanks, HalfOfTheMachinesFetchTheSameChunkToASlot) {
  Op fetch = make_fetch({Space::Weights, 1}, 1);
  const Machine machine{.network_bytes_per_s = kChunk};
  const Plan copy = stands_for_all(written({{fetch, {}}}), 3, 8);
  fetch.slot = BufferIndex(0);
  const Plan to_slot = stands_for_all(written({{fetch, {}}}), 3, 8);
  EXPECT_DOUBLE_EQ(seconds({&copy}, machine), 1);
  EXPECT_DOUBLE_EQ(seconds({&to_slot}, machine), 4);
  // The same if a rank is simulated alone.
  EXPECT_DOUBLE_EQ(simulate(copy, case_.trace, case_.layout, machine).seconds, 1);
  EXPECT_DOUBLE_EQ(simulate(to_slot, case_.trace, case_.layout, machine).seconds, 4);
}

/// The parts of four ranks: a rank loads a quarter over its link, and reads three quarters from the
/// devices of the others, which takes the same from the device of one owner.
TEST_F(SimulateRanks, ASplitLoadTakesItsPartOfTheLink) {
  const auto time = [&](Op op, uint32_t chunk, const Machine& machine) {
    op.chunk = {Space::Weights, chunk};
    op.split = 0;
    Plan plan = written({{op, {}}});
    plan.division = {.place = {0, 4, 1}, .num_micro_batches = 4, .num_groups = 4};
    for (ChunkIndex c{0}; c < 2; ++c) {
      plan.chunks[c] = {.owner = c, .is_mine = c == 0, .tier = op.from};
    }
    return simulate(plan, case_.trace, case_.layout, machine).seconds;
  };
  const Op part = make_move({}, Tier::Host, Tier::Peer);
  const Op part_of_owner = make_move({}, Tier::Peer, Tier::Peer);
  const Op gather = make_move({}, Tier::Peer, Tier::Device);
  const Machine link{.load_bytes_per_s = kChunk};
  const Machine connected{.load_bytes_per_s = kChunk, .peer_bytes_per_s = 3 * kChunk};
  for (const uint32_t chunk : {0u, 1u}) {
    EXPECT_DOUBLE_EQ(time(part, chunk, link), 0.25);
    EXPECT_DOUBLE_EQ(time(part, chunk, connected), 0.25);
    EXPECT_DOUBLE_EQ(time(part, chunk, {.host_bytes_per_s = kChunk}), 0.25);
    EXPECT_DOUBLE_EQ(time(gather, chunk, connected), 0.25);
    EXPECT_DOUBLE_EQ(time(gather, chunk, link), 0.75 / 4);  // the rate that is assumed
    EXPECT_DOUBLE_EQ(time(gather, chunk, {.host_bytes_per_s = kChunk}), 0);
  }
  EXPECT_DOUBLE_EQ(time(part_of_owner, 1, connected), 0.25);
  EXPECT_DOUBLE_EQ(time(part_of_owner, 1, {.host_bytes_per_s = kChunk}), 0);
  EXPECT_DOUBLE_EQ(time(part_of_owner, 0, {.device_bytes_per_s = kChunk}), 0.5);
}

TEST_F(SimulateRanks, AMessageTakesTimeToAnotherMachine) {
  const Machine machine{
      .load_bytes_per_s = kChunk, .message_s = 0.5, .update_bytes_per_s = kUpdated};
  const auto step_s = [&](uint32_t num_machines) {
    const auto ranks = on_machines(2, num_machines, [&](uint32_t rank) {
      if (rank == 1) {
        return written({{receive(Message::Weights, 0), {}}, {test::kLoad, {}, {0}}});
      }
      return written({{test::kUpdate, {}}, {send(Message::Weights, 0), {}, {0}}});
    });
    return seconds({&ranks[0], &ranks[1]}, machine);
  };
  EXPECT_DOUBLE_EQ(step_s(1), 2 + 1);  // each has half of the threads
  EXPECT_DOUBLE_EQ(step_s(2), 1 + 0.5 + 1);
}

TEST_F(SimulateRanks, EnoughHostMemoryChangesNoBit) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::SimulatedCase s = test::simulate_any_case(seed);
    Machine machine = test::kSlowMachine;
    machine.host_bytes_per_s =
        machine.load_bytes_per_s + machine.store_bytes_per_s + machine.update_bytes_per_s * 1.0001;
    const Simulation limited = simulate(s.plan, s.planned.trace, s.planned.layout, machine);
    EXPECT_EQ(limited.seconds, s.simulation.seconds);
    for (size_t i = 0; i < limited.ops.size(); ++i) {
      ASSERT_EQ(limited.ops[i].start_s, s.simulation.ops[i].start_s);
      ASSERT_EQ(limited.ops[i].end_s, s.simulation.ops[i].end_s);
    }
  }
}

/// A machine with less host memory bandwidth: no step is faster, nor faster than the memory allows.
TEST_F(SimulateRanks, LessHostMemoryIsNeverFasterThanItsBound) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::SimulatedCase s = test::simulate_any_case(seed);
    const RankStep step{s.plan, s.planned.trace, s.planned.layout};
    const RankStep ranks[] = {step, step, step};
    Machine machine = test::kSlowMachine;
    const double unlimited_s = simulate_ranks(ranks, machine)[0].seconds;
    EXPECT_EQ(lower_bound(ranks, machine, false).host_memory_s, 0);
    double before_s = unlimited_s;
    for (const double rate : {4e9, 2e9, 1e9}) {
      machine.host_bytes_per_s = rate;
      const double limited_s = simulate_ranks(ranks, machine)[0].seconds;
      const Bound least = lower_bound(ranks, machine, false);
      EXPECT_GE(limited_s, least.seconds * (1 - 1e-9)) << seed;
      EXPECT_GE(limited_s, unlimited_s * (1 - 1e-9)) << seed;
      EXPECT_GE(least.seconds, least.host_memory_s);
      EXPECT_GT(least.host_memory_s, 0);
      EXPECT_LE(limited_s, before_s * 2 * (1 + 1e-9)) << "half the bandwidth";
      before_s = limited_s;
    }
  }
}

TEST_F(SimulateRanks, ARankHasItsPartOfTheMachine) {
  const Machine gpu{
      .flops_per_s = 8, .load_bytes_per_s = 6, .update_bytes_per_s = 4, .host_bytes_per_s = 12};
  const Machine half = machine_of_rank(gpu, 2);
  EXPECT_EQ(half.flops_per_s, 8);  // of its own device
  EXPECT_EQ(half.load_bytes_per_s, 6);
  EXPECT_EQ(half.update_bytes_per_s, 2);
  EXPECT_EQ(half.host_bytes_per_s, 6);
  Machine cores = gpu;
  cores.shared_cores = true;
  cores.copy_bytes_per_s = 10;
  EXPECT_EQ(machine_of_rank(cores, 2).flops_per_s, 4);
  EXPECT_EQ(machine_of_rank(cores, 2).copy_bytes_per_s, 5);
  cores.emulate_compute = true;  // kernels sleep
  EXPECT_EQ(machine_of_rank(cores, 2).flops_per_s, 8);
}

}  // namespace
}  // namespace ebb
