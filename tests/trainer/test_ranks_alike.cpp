// One rank, or those of one machine, stand for all ranks: their simulation against that of all
// ranks, and what each rank takes and moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/plan/simulate.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

struct AlikeCase {
  std::string name;
  uint32_t num_machines, per_machine;
  bool clip;
  bool sums_on_devices = false;
  bool state_on_devices = false;
  bool copies_weights = false;
  bool chains_sums = false;
  bool splits_loads = false;
};

class RanksAlike : public testing::TestWithParam<AlikeCase> {
 protected:
  RanksAlike() {
    const AlikeCase& c = GetParam();
    const uint32_t num_ranks = c.num_machines * c.per_machine;
    const TrainingCase run{.clip = c.clip,
                           .accumulation = num_ranks,
                           .memory = Memory::Between,
                           .order = MicroBatchOrder::Vertical,
                           .between = c.state_on_devices ? Between::State : Between::Nothing,
                           .num_ranks = num_ranks,
                           .num_machines = c.num_machines,
                           .copies_weights = c.copies_weights,
                           .chains_sums = c.chains_sums,
                           .sums_on_devices = c.sums_on_devices,
                           .splits_loads = c.splits_loads,
                           .groups = num_ranks,
                           .model = deep_gpt()};
    const Gpt2 model(run.model, kMicroBatchSize, kLength, DType::BF16);
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      prepared_.push_back(prepare_case(model, run, rank));
    }
  }
  static Gpt2Config deep_gpt() {
    Gpt2Config config = small_gpt();
    config.num_layers = 24;
    return config;
  }
  /// If sums are chained, those of the second machine stand for all: the first one receives no
  /// running sums.
  std::vector<RankStep> first(size_t count) const {
    const bool is_second = count < prepared_.size() && GetParam().chains_sums;
    const size_t begin = is_second ? GetParam().per_machine : 0;
    std::vector<RankStep> steps;
    for (size_t i = begin; i < begin + count; ++i) {
      steps.push_back({prepared_[i].plan, prepared_[i].trace, *prepared_[i].layout});
    }
    return steps;
  }
  static double longest_s(const std::vector<RankStep>& steps, const Machine& machine) {
    double seconds = 0;
    for (const Simulation& s : simulate_ranks(steps, machine)) {
      seconds = std::max(seconds, s.seconds);
    }
    return seconds;
  }

  /// By how much more the time of some may differ from that of all, where this rate is the
  /// bottleneck. Each machine of a chain is a little later than the one before, and with few chunks
  /// for each rank this counts: 9.2 % were seen where additions are the bottleneck. Without
  /// clipping, they also wait for the updates of owners along the chain: 21.1 %.
  double of_chain(double Machine::*slow) const {
    const bool is_chained = GetParam().chains_sums, on_devices = GetParam().sums_on_devices;
    if (slow == &Machine::host_bytes_per_s) return is_chained ? 0.02 : 0;
    if (!is_chained) return 0;
    if (slow == &Machine::update_bytes_per_s) return GetParam().clip || on_devices ? 0.09 : 0.21;
    return 0.01;
  }

  std::vector<Preparation> prepared_;
};

/// A machine on which this rate is the bottleneck.
Machine machine_with_slow(double Machine::*rate, double factor) {
  Machine machine{.flops_per_s = 4e10,
                  .load_bytes_per_s = 4e9,
                  .store_bytes_per_s = 4e9,
                  .network_bytes_per_s = 1e11,
                  .message_s = 1e-6,
                  .update_bytes_per_s = 4e10,
                  .host_bytes_per_s = 2e11};
  machine.*rate /= factor;
  return machine;
}

/// If the network is the bound, not all machines are at the same place.
TEST_P(RanksAlike, SomeStandForAll) {
  struct Slow {
    double Machine::*rate;
    double factor, tolerance;
  };
  for (const Slow slow : {Slow{&Machine::flops_per_s, 4, 0.01},
                          {&Machine::load_bytes_per_s, 8, 0.01},
                          {&Machine::load_bytes_per_s, 64, 0.01},
                          {&Machine::update_bytes_per_s, 8, 0.01},
                          {&Machine::update_bytes_per_s, 64, 0.01},
                          {&Machine::host_bytes_per_s, 64, 0.04},
                          {&Machine::network_bytes_per_s, 8, 0.01},
                          {&Machine::network_bytes_per_s, 1024, 0.07}}) {
    const Machine machine = machine_with_slow(slow.rate, slow.factor);
    // Without clipping, the updates of the ranks do not come at exactly the same times: 1.1 % of
    // the step with all ranks of a machine, and 6.2 % with one of eight, were seen. With copies,
    // one rank also stands for those that fetch for its machine: 1.3 and 4.7 % were seen.
    const double of_copies = GetParam().copies_weights ? 0.007 : 0;
    // With split loads, ranks also wait for each other before each load: 4.4 and 6.7 % instead
    // of 4.0 and 6.2 % where one rank stands for all.
    const double of_split = GetParam().splits_loads ? 0.005 : 0;
    const double machine_tolerance =
        slow.tolerance + of_copies + of_chain(slow.rate) + (GetParam().clip ? 0 : 0.002);
    const double tolerance =
        slow.tolerance + of_copies + of_split + of_chain(slow.rate) + (GetParam().clip ? 0 : 0.025);
    const double all_s = longest_s(first(prepared_.size()), machine);
    const double of_machine_s = longest_s(first(GetParam().per_machine), machine);
    EXPECT_NEAR(of_machine_s / all_s, 1, machine_tolerance) << slow.factor;
    EXPECT_NEAR(longest_s(first(1), machine) / all_s, 1, tolerance) << slow.factor;
    for (const size_t count : {size_t{1}, prepared_.size()}) {
      const Bound bound = lower_bound(first(count), machine, GetParam().clip);
      const double more = count > 1 ? 1e-9 : tolerance - of_chain(slow.rate);
      EXPECT_LE(bound.seconds, all_s * (1 + more)) << bound.bound_by;
    }
  }
}

/// What is said of ranks that are not prepared is what their preparation says.
TEST_P(RanksAlike, TakeAndMoveWhatTheirPlansSay) {
  const std::vector<RankTotals> totals = totals_of_ranks(prepared_[0], {});
  ASSERT_EQ(totals.size(), prepared_.size());
  for (size_t rank = 0; rank < totals.size(); ++rank) {
    const Preparation& p = prepared_[rank];
    EXPECT_EQ(totals[rank].num_micro_batches, p.share.micro_batches.count);
    EXPECT_EQ(totals[rank].loaded_bytes, p.plan.loaded_bytes);
    EXPECT_EQ(totals[rank].stored_bytes, p.plan.stored_bytes);
    EXPECT_EQ(totals[rank].fetched_bytes, p.plan.fetched_bytes);
    EXPECT_EQ(totals[rank].ledger.table(), p.ledger.table());
    for (const LedgerEntry& e : p.ledger.entries()) {
      EXPECT_EQ(totals[rank].ledger.bytes(e.name, e.tier), p.ledger.bytes(e.name, e.tier))
          << e.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , RanksAlike,
    testing::ValuesIn<AlikeCase>(
        {{"TwoTimesTwo", 2, 2, true},
         {"FourTimesTwo", 4, 2, true},
         {"EightTimesOne", 8, 1, true},
         {"FourTimesTwoUnclipped", 4, 2, false},
         {"FourTimesTwoWithCopies", 4, 2, true, false, false, true},
         {"EightTimesOneWithCopies", 8, 1, true, false, false, true},
         {"FourTimesTwoUnclippedWithCopies", 4, 2, false, false, false, true},
         {"FourTimesTwoChained", 4, 2, true, false, false, false, true},
         {"FourTimesTwoUnclippedChainedWithCopies", 4, 2, false, false, false, true, true},
         {"FourTimesTwoChainedOnDevicesWithCopies", 4, 2, true, true, false, true, true},
         {"FourTimesTwoWithSplitLoads", 4, 2, true, false, false, false, false, true},
         {"EightUnclippedWithSplitLoads", 1, 8, false, false, false, false, false, true},
         {"EightUnclipped", 1, 8, false},
         {"FourOnDevices", 1, 4, true, true},
         {"FourWithState", 1, 4, true, true, true}}),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace ebb::test
