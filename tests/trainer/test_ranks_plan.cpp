// The plans of ranks: damage is found, and they fit together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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
};

/// The plans of three ranks of a small model under the smallest budget.
class RankPlans : public testing::TestWithParam<RankPlansCase> {
 protected:
  static constexpr uint32_t kNumRanks = 3;

  RankPlans() {
    const TrainingCase run{.clip = GetParam().clip,
                           .accumulation = 5,
                           .memory = Memory::Smallest,
                           .num_pieces = 4,
                           .order = MicroBatchOrder::Vertical,
                           .between = GetParam().clip ? Between::Nothing : Between::Weights,
                           .num_ranks = kNumRanks,
                           .num_machines = GetParam().num_machines};
    const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
    for (uint32_t rank = 0; rank < kNumRanks; ++rank) {
      prepared_.push_back(prepare_case(model, run, rank));
    }
  }
  std::vector<std::string> find_problems(const Plan& plan, uint32_t rank) const {
    const Preparation& p = prepared_[rank];
    return validate(plan, p.trace, *p.layout,
                    {.num_blocks = p.num_blocks,
                     .update_after_norm = GetParam().clip,
                     .schedule = p.schedule,
                     .division = p.division});
  }
  /// The problems of all plans together, where rank 1 has this plan.
  std::vector<std::string> find_problems_of_all(const Plan& of_rank_1) const {
    const Plan* const plans[kNumRanks] = {&prepared_[0].plan, &of_rank_1, &prepared_[2].plan};
    return validate_ranks(plans);
  }

  std::vector<Preparation> prepared_;
};

TEST_P(RankPlans, AreValidAndFitTogether) {
  for (uint32_t rank = 0; rank < kNumRanks; ++rank) {
    EXPECT_EQ(find_problems(prepared_[rank].plan, rank), std::vector<std::string>{});
    EXPECT_EQ(prepared_[rank].plan.fetched_bytes > 0, GetParam().num_machines > 1);
  }
  EXPECT_EQ(find_problems_of_all(prepared_[1].plan), std::vector<std::string>{});
}

TEST_P(RankPlans, ALostOperationIsFound) {
  const Plan& plan = prepared_[1].plan;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    EXPECT_FALSE(find_problems(without_op(plan, i), 1).empty())
        << "without op " << i << ":\n"
        << to_string(plan, prepared_[1].trace);
  }
}

TEST_P(RankPlans, AMissingWaitIsFound) {
  const Plan& plan = prepared_[1].plan;
  const auto all = reachability(plan);
  int num_needed = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    for (const OpIndex w : plan.waits_of(plan.ops[i])) {
      const Plan damaged = without_wait(plan, i, w);
      if (reachability(damaged)[i][w]) continue;
      ++num_needed;
      EXPECT_FALSE(find_problems(damaged, 1).empty())
          << "op " << i << " without its wait for op " << w << ":\n"
          << to_string(plan, prepared_[1].trace);
    }
  }
  EXPECT_GT(num_needed, 40);
}

/// The rank that does not send a message is valid by itself only if nobody waits for the message.
TEST_P(RankPlans, AMessageThatIsNotSentIsFound) {
  const Plan& plan = prepared_[1].plan;
  int num_awaited = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind != OpKind::Send) continue;
    num_awaited += !find_problems_of_all(without_op(plan, i)).empty();
  }
  EXPECT_GT(num_awaited, 3);
}

/// A rank that adds the sums of its chunks in another order waits for ever, and others with it.
TEST_P(RankPlans, OrdersThatWaitForEachOtherAreFound) {
  const Plan& plan = prepared_[1].plan;
  const auto is = [](OpKind kind, Message message) {
    return [=](const Op& op) { return op.kind == kind && op.message == message; };
  };
  const auto norms = find_op(plan, is(OpKind::Receive, Message::Norms));
  const auto sums = find_op(plan, is(OpKind::Receive, Message::Sums));
  ASSERT_TRUE(norms && sums && *sums < *norms);
  const auto problems = find_problems_of_all(with_op_before(plan, *norms, *sums));
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("waits for ever for "), std::string::npos) << problems[0];
}

INSTANTIATE_TEST_SUITE_P(, RankPlans,
                         testing::ValuesIn<RankPlansCase>({{"Clipped", true, 1},
                                                           {"Unclipped", false, 1},
                                                           {"ClippedOnThreeMachines", true, 3},
                                                           {"UnclippedOnThreeMachines", false, 3}}),
                         [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace ebb::test
