// The plans of ranks: damage is found, and they fit together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "scheduler/plan/running_sums.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/plan/split_loads.h"
#include "scheduler/plan/validate.h"
#include "scheduler/plan/validation_ranks.h"
#include "tests/scheduler/plan_edits.h"
#include "tests/scheduler/plan_reference.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

struct RankPlansCase {
  std::string name;
  bool clip;
  uint32_t num_machines;
  bool sums_on_devices = false;
  bool state_on_devices = false;
  bool delayed_updates = false;
  bool copies_weights = false;
  uint32_t num_ranks = 3;
  bool chains_sums = false;
  bool splits_loads = false;
};

/// The plans of the ranks of a small model under the smallest budget.
class RankPlans : public testing::TestWithParam<RankPlansCase> {
 protected:
  RankPlans() {
    const TrainingCase run{.clip = GetParam().clip,
                           .accumulation = GetParam().splits_loads
                                               ? 2 * GetParam().num_ranks
                                               : std::max(5u, GetParam().num_ranks),
                           .memory = holds_residents() ? Memory::Between : Memory::Smallest,
                           .num_pieces = num_pieces(),
                           .order = MicroBatchOrder::Vertical,
                           .between = GetParam().state_on_devices ? Between::State
                                      : GetParam().clip           ? Between::Nothing
                                                                  : Between::Weights,
                           .num_ranks = GetParam().num_ranks,
                           .num_machines = GetParam().num_machines,
                           .copies_weights = GetParam().copies_weights,
                           .chains_sums = GetParam().chains_sums,
                           .sums_on_devices = GetParam().sums_on_devices,
                           .splits_loads = GetParam().splits_loads,
                           .delayed_updates = GetParam().delayed_updates};
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
    for (uint32_t rank = 0; rank < run.num_ranks; ++rank) {
      prepared_.push_back(prepare_case(model, run, rank));
    }
  }
  /// With smaller chunks, some stay in host memory, each rank owns several, and running slots are
  /// used again.
  static size_t num_pieces() {
    const RankPlansCase& c = GetParam();
    if (c.chains_sums && c.num_ranks == c.num_machines) return 2;
    if (c.chains_sums || c.copies_weights) return 1;
    return c.state_on_devices ? 2 : 4;
  }
  /// Then resident weights are loaded again after an update, and the copy has the old ones.
  static bool holds_residents() { return GetParam().copies_weights && !GetParam().clip; }
  std::vector<std::string> find_problems(const Plan& plan, uint32_t rank) const {
    const Preparation& p = prepared_[rank];
    return validate(plan, p.trace, *p.layout,
                    {.num_blocks = p.num_blocks,
                     .update_after_norm = GetParam().clip,
                     .delayed_updates = GetParam().delayed_updates,
                     .schedule = p.schedule,
                     .division = p.division});
  }
  /// The problems of all plans together, where this rank has this plan.
  std::vector<std::string> find_problems_of_all(const Plan& of_rank, uint32_t rank = 1) const {
    std::vector<const Plan*> plans;
    for (const Preparation& p : prepared_) plans.push_back(&p.plan);
    plans[rank] = &of_rank;
    return validate_ranks(plans);
  }
  /// Ranks whose plans are to be damaged: the last machine of a chain has other operations.
  std::vector<uint32_t> ranks_to_damage() const {
    if (!GetParam().chains_sums) return {1};
    return {1, GetParam().num_ranks - 1};
  }

  static bool waits_for_free_running_slots(const Plan& plan) {
    return std::ranges::any_of(plan.ops, [&plan](const Op& op) {
      const bool is_last = is_last_machine(plan.division.place);
      return op.kind == OpKind::Receive &&
             op.message == (is_last ? Message::TotalCopied : Message::SumCopied);
    });
  }

  std::vector<Preparation> prepared_;
};

TEST_P(RankPlans, AreValidAndFitTogether) {
  for (uint32_t rank = 0; rank < prepared_.size(); ++rank) {
    EXPECT_EQ(find_problems(prepared_[rank].plan, rank), std::vector<std::string>{});
    const Plan& plan = prepared_[rank].plan;
    EXPECT_EQ(plan.fetched_bytes > 0, GetParam().num_machines > 1);
    const auto fetches = [&plan](bool to_slot) {
      return std::ranges::any_of(
          plan.ops, [=](const Op& op) { return is_fetch(op) && (op.slot != kNone) == to_slot; });
    };
    if (GetParam().chains_sums) {
      EXPECT_TRUE(waits_for_free_running_slots(plan));
    }
    if (GetParam().copies_weights) {
      EXPECT_TRUE(fetches(false));
      EXPECT_EQ(fetches(true), holds_residents());
    }
    EXPECT_EQ(std::ranges::any_of(plan.ops, is_gather),
              GetParam().state_on_devices || GetParam().splits_loads);
    const auto num_parts = std::ranges::count_if(plan.ops, is_load_part);
    EXPECT_EQ(num_parts > kPartSlots, GetParam().splits_loads);
    EXPECT_LT(plan.count(&ChunkRecord::is_on_owner), plan.chunks.size());
    EXPECT_EQ(plan.chunks_that(&ChunkRecord::is_on_owner),
              prepared_[0].plan.chunks_that(&ChunkRecord::is_on_owner));
  }
  EXPECT_EQ(find_problems_of_all(prepared_[1].plan), std::vector<std::string>{});
}

TEST_P(RankPlans, ALostOperationIsFound) {
  for (const uint32_t rank : ranks_to_damage()) {
    const Plan& plan = prepared_[rank].plan;
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      EXPECT_FALSE(find_problems(without_op(plan, i), rank).empty())
          << "without op " << i << ":\n"
          << to_string(plan, prepared_[rank].trace);
    }
  }
}

TEST_P(RankPlans, AMissingWaitIsFound) {
  for (const uint32_t rank : ranks_to_damage()) {
    const Plan& plan = prepared_[rank].plan;
    const auto all = reachability(plan);
    int num_needed = 0;
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      for (const OpIndex w : plan.waits_of(plan.ops[i])) {
        const Plan damaged = without_wait(plan, i, w);
        if (reachability(damaged)[i][w]) continue;
        ++num_needed;
        EXPECT_FALSE(find_problems(damaged, rank).empty())
            << "op " << i << " without its wait for op " << w << ":\n"
            << to_string(plan, prepared_[rank].trace);
      }
    }
    EXPECT_GT(num_needed, 40);
  }
}

/// The rank that does not send a message is valid by itself only if nobody waits for the message.
TEST_P(RankPlans, AMessageThatIsNotSentIsFound) {
  for (const uint32_t rank : ranks_to_damage()) {
    const Plan& plan = prepared_[rank].plan;
    int num_awaited = 0;
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      if (plan.ops[i].kind != OpKind::Send) continue;
      num_awaited += !find_problems_of_all(without_op(plan, i), rank).empty();
    }
    EXPECT_GT(num_awaited, 3);
  }
}

/// A rank that sends its sums, or their addition to a running sum, after it has got the norms waits
/// for ever: the others make norms of these sums.
TEST_P(RankPlans, OrdersThatWaitForEachOtherAreFound) {
  const Plan& plan = prepared_[1].plan;
  const auto is = [](OpKind kind, Message message) {
    return [=](const Op& op) { return op.kind == kind && op.message == message; };
  };
  const auto norms = find_op(plan, is(OpKind::Receive, Message::Norms));
  const bool sends_sums = GetParam().num_machines < GetParam().num_ranks || !GetParam().chains_sums;
  const auto sums = find_op(plan, is(OpKind::Send, sends_sums ? Message::Sums : Message::Added));
  ASSERT_TRUE(norms && sums && *sums < *norms);
  const Plan moved = with_op_before(plan, *norms, *sums);
  const OpIndex receives = *sums, sends = OpIndex(*sums + 1);
  const auto problems = find_problems_of_all(with_wait(moved, sends, receives));
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("waits for ever for "), std::string::npos) << problems[0];
}

// ---- The simulation of all ranks together

std::vector<RankStep> steps_of(const std::vector<Preparation>& prepared) {
  std::vector<RankStep> steps;
  for (const Preparation& p : prepared) steps.push_back({p.plan, p.trace, *p.layout});
  return steps;
}

/// A machine on which each stream of a rank is sometimes late. In every third one, ranks share
/// nothing: host memory and network have no limit.
Machine machine_of_seed(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto rate = [&](double around) {
    return around * std::exp2(static_cast<double>(random() % 9) - 4);
  };
  return {.flops_per_s = rate(5e9),
          .load_bytes_per_s = rate(1e8),
          .store_bytes_per_s = rate(1e8),
          .peer_bytes_per_s = rate(1e8),
          .network_bytes_per_s = seed % 3 == 0 ? 0 : rate(1e8),
          .update_bytes_per_s = rate(2e9),
          .host_bytes_per_s = seed % 3 == 0 ? 0 : rate(5e8)};
}

/// The step in which operations of ranks slow each other down only by messages: when each operation
/// ends, from what it waits for, again and again until nothing changes.
class SlowestChains {
 public:
  SlowestChains(std::vector<RankStep> steps, const Machine& machine)
      : steps_(std::move(steps)),
        of_rank_(machine_of_rank(machine, steps_[0].plan.division.place.ranks_per_machine())) {
    for (const RankStep& step : steps_) {
      times_.emplace_back(step.plan.ops.size());
      for (size_t i = 0; i < step.plan.ops.size(); ++i) durations_.push_back(alone_s(step, i));
    }
    for (bool changes = true; changes;) {
      const auto before = times_;
      size_t first = 0;
      for (size_t r = 0; r < steps_.size(); first += steps_[r++].plan.ops.size()) pass(r, first);
      changes = false;
      for (size_t r = 0; r < steps_.size(); ++r) {
        for (size_t i = 0; i < times_[r].size(); ++i) {
          changes = changes || times_[r][i].end_s != before[r][i].end_s;
        }
      }
    }
  }
  const std::vector<std::vector<OpTime>>& times() const { return times_; }

 private:
  double alone_s(const RankStep& step, size_t i) const {
    Plan alone{.ops = {step.plan.ops[i]}, .chunks = step.plan.chunks};
    alone.division = step.plan.division;
    alone.ops[0].first_wait = alone.ops[0].num_waits = 0;
    return simulate(alone, step.trace, step.layout, of_rank_).seconds;
  }

  void pass(size_t rank, size_t first_duration) {
    const Plan& plan = steps_[rank].plan;
    double free_s[kNumStreamKinds] = {}, copy_thread_s = 0;
    for (uint32_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      double& stream_s = free_s[static_cast<int>(op.stream)];
      double start_s = op.stream == StreamKind::Load ? copy_thread_s : stream_s;
      for (const OpIndex w : plan.waits_of(op)) start_s = std::max(start_s, times_[rank][w].end_s);
      if (op.stream == StreamKind::Load) copy_thread_s = start_s;
      if (takes_no_time(op)) {
        times_[rank][i] = {start_s, start_s};
        if (op.stream != StreamKind::Load) stream_s = start_s;
        continue;
      }
      start_s = std::max(start_s, stream_s);
      double end_s = start_s + durations_[first_duration + i];
      if (op.kind == OpKind::Receive) end_s = std::max(end_s, sent_s(rank, op));
      times_[rank][i] = {start_s, end_s};
      stream_s = end_s;
    }
  }

  /// When the last of the other ranks has sent what `receive` waits for.
  double sent_s(size_t receiver, const Op& receive) const {
    double last_s = 0;
    for (size_t r = 0; r < steps_.size(); ++r) {
      if (r == receiver || (receive.sender != kNone && r != receive.sender)) continue;
      const bool is_far = !steps_[receiver].plan.division.place.is_near(static_cast<uint32_t>(r));
      if (is_far && is_from_machine(receive, steps_[receiver].plan.division)) continue;
      const Plan& plan = steps_[r].plan;
      for (uint32_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        const bool is_meant = op.kind == OpKind::Send && op.message == receive.message &&
                              op.chunk.index == receive.chunk.index && op.split == receive.split &&
                              op.deferred == receive.deferred;
        if (is_meant) last_s = std::max(last_s, times_[r][i].end_s);
      }
    }
    return last_s;
  }

  const std::vector<RankStep> steps_;
  const Machine of_rank_;
  std::vector<double> durations_;  // of the operations of all ranks
  std::vector<std::vector<OpTime>> times_;
};

TEST_P(RankPlans, WithUnlimitedHostMemoryAStepTakesAsLongAsItsSlowestChain) {
  for (uint64_t seed = 0; seed < 30; seed += 3) {
    const Machine machine = machine_of_seed(seed);
    const std::vector<Simulation> simulated = simulate_ranks(steps_of(prepared_), machine);
    const SlowestChains chains(steps_of(prepared_), machine);
    for (uint32_t rank = 0; rank < prepared_.size(); ++rank) {
      for (uint32_t i = 0; i < prepared_[rank].plan.ops.size(); ++i) {
        // Only the end of a Receive matters: a stream begins to wait before, or at its end.
        ASSERT_EQ(simulated[rank].ops[i].end_s, chains.times()[rank][i].end_s)
            << "rank " << rank << " op " << i << " seed " << seed;
      }
    }
  }
}

TEST_P(RankPlans, WaitForEachOtherAndForHostMemory) {
  int num_slowed = 0, num_waits = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Machine machine = machine_of_seed(seed);
    double least_s = 0, seconds = 0;
    for (const Simulation& s : simulate_ranks(steps_of(prepared_), machine)) {
      seconds = std::max(seconds, s.seconds);
    }
    for (const Preparation& p : prepared_) {
      const uint32_t per_machine = p.division.place.ranks_per_machine();
      // If the others use neither host memory nor network.
      Machine of_rank = machine_of_rank(machine, per_machine);
      of_rank.host_bytes_per_s = machine.host_bytes_per_s;
      of_rank.network_bytes_per_s = machine.network_bytes_per_s;
      least_s = std::max(least_s, simulate(p.plan, p.trace, *p.layout, of_rank).seconds);
    }
    EXPECT_GE(seconds, least_s * (1 - 1e-9)) << seed;
    const Bound bound = lower_bound(steps_of(prepared_), machine, GetParam().clip);
    EXPECT_LE(bound.seconds, seconds * (1 + 1e-9)) << seed << ' ' << bound.bound_by;
    num_waits += seconds > 1.001 * least_s;
    machine.host_bytes_per_s = 0;
    const double unlimited_s = simulate_ranks(steps_of(prepared_), machine)[0].seconds;
    EXPECT_LE(unlimited_s, seconds * (1 + 1e-9));
    num_slowed += seconds > 1.1 * unlimited_s;
  }
  if (GetParam().state_on_devices) return;  // they hardly use host memory
  EXPECT_GT(num_waits, 20);
  EXPECT_GT(num_slowed, 10);
}

INSTANTIATE_TEST_SUITE_P(
    , RankPlans,
    testing::ValuesIn<RankPlansCase>(
        {{"Clipped", true, 1},
         {"Unclipped", false, 1},
         {"SumsOnDevices", true, 1, true},
         {"StateOnDevices", true, 1, true, true},
         {"UnclippedStateOnDevices", false, 1, true, true},
         {"Delayed", true, 1, false, false, true},
         {"DelayedOnThreeMachines", true, 3, false, false, true},
         {"Copies", true, 2, false, false, false, true, 4},
         {"UnclippedCopies", false, 2, false, false, false, true, 4},
         {"DelayedCopies", true, 2, false, false, true, true, 4},
         {"Chained", true, 2, false, false, false, false, 4, true},
         {"UnclippedChained", false, 3, false, false, false, false, 6, true},
         {"ChainedCopies", false, 2, false, false, false, true, 4, true},
         {"CopiesOnSixMachines", true, 6, false, false, false, true, 6, true},
         {"ChainedOnThreeMachines", true, 3, false, false, false, false, 3, true},
         {.name = "SplitLoads", .clip = true, .num_machines = 1, .splits_loads = true},
         {.name = "UnclippedSplitLoads", .clip = false, .num_machines = 1, .splits_loads = true},
         {.name = "SplitLoadsOfStateOnDevices",
          .clip = true,
          .num_machines = 1,
          .sums_on_devices = true,
          .state_on_devices = true,
          .splits_loads = true},
         {.name = "SplitLoadsOnTwoMachines",
          .clip = true,
          .num_machines = 2,
          .num_ranks = 4,
          .splits_loads = true},
         {.name = "UnclippedSplitLoadsWithCopies",
          .clip = false,
          .num_machines = 2,
          .copies_weights = true,
          .num_ranks = 4,
          .chains_sums = true,
          .splits_loads = true},
         {"ClippedOnThreeMachines", true, 3},
         {"UnclippedOnThreeMachines", false, 3}}),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace ebb::test
