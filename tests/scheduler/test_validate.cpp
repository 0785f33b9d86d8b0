// The validator must find every damage to a valid plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "chunk/index_format.h"
#include "scheduler/plan/validate.h"
#include "tests/scheduler/plan_cases.h"
#include "tests/scheduler/plan_edits.h"
#include "tests/scheduler/plan_reference.h"

namespace ebb {
namespace {

using test::Case;
using test::find_op;
using test::is_load;
using test::Planned;

bool is_assignment(const Op& op) { return op.kind == OpKind::Move && op.to == Tier::Device; }
bool is_store(const Op& op) { return op.kind == OpKind::Move && op.to == Tier::Host; }
test::OpTest is_kind(OpKind kind) {
  return [kind](const Op& op) { return op.kind == kind; };
}

/// A plan that evicts weights and gradient sums, with helpers that damage it.
class Damage : public testing::TestWithParam<bool> {
 protected:
  Damage() {
    EXPECT_TRUE(is_good(planned_.plan));
    EXPECT_FALSE(planned_.plan.stored_sums.empty());
    EXPECT_FALSE(planned_.plan.stored_activations.empty());
  }
  std::vector<std::string> find_problems(const Plan& plan) const {
    return validate(plan, case_.trace, case_.layout, planned_.options);
  }
  bool is_good(const Plan& plan) const { return find_problems(plan).empty(); }
  /// Expects that a message about the damage contains the text.
  void expect_found(const Plan& damaged, std::string_view text) const {
    const auto messages = find_problems(damaged);
    const bool found = std::ranges::any_of(
        messages, [&](const std::string& m) { return m.find(text) != std::string::npos; });
    EXPECT_TRUE(found) << '"' << text << "\" is not among " << messages.size() << ":\n"
                       << fmt::format("{}", fmt::join(messages, "\n"));
  }
  OpIndex first(const test::OpTest& test, uint32_t from = 0) const {
    const auto op = find_op(planned_.plan, test, from);
    EXPECT_TRUE(op);
    return op.value_or(OpIndex(0));
  }
  Plan with(OpIndex op, const std::function<void(Op&)>& change) const {
    Plan plan = planned_.plan;
    change(plan.ops[op]);
    return plan;
  }

  const Case case_ =
      test::make_case({.num_layers = 4, .num_micro_batches = 2, .tied = true, .idle = true}, 4);
  const Planned planned_ = test::plan_case(case_, test::smallest_blocks(case_) + 1, GetParam());
};

TEST_P(Damage, EveryMissingWaitIsFound) {
  int num_needed = 0, num_implied = 0;
  const Plan& plan = planned_.plan;
  const auto all = test::reachability(plan);
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    for (const OpIndex w : plan.waits_of(plan.ops[i])) {
      const Plan damaged = test::without_wait(plan, i, w);
      const auto left = test::reachability(damaged);
      if (!left[i][w]) {
        ++num_needed;
        EXPECT_FALSE(is_good(damaged)) << "op " << i << " without its wait for op " << w;
      } else if (left == all) {
        ++num_implied;
        EXPECT_TRUE(is_good(damaged)) << "op " << i << " without its needless wait for op " << w;
      }
    }
  }
  EXPECT_GT(num_needed, 60);
  EXPECT_GT(num_implied, 0);
}

TEST_P(Damage, ALostOperation) {
  const Plan& plan = planned_.plan;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    EXPECT_FALSE(is_good(test::without_op(plan, i))) << "without op " << i << ":\n"
                                                     << to_string(plan, case_.trace);
  }
}

TEST_P(Damage, ARepeatedOperation) {
  const Plan& plan = planned_.plan;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    EXPECT_FALSE(is_good(test::with_op_twice(plan, i))) << "op " << i << " twice";
  }
}

TEST_P(Damage, ABlockAssignedTwice) {
  const OpIndex a = first(is_assignment);
  const OpIndex b = first(is_assignment, a + 1);
  expect_found(with(b, [&](Op& op) { op.block = planned_.plan.ops[a].block; }), "gets block");
}

TEST_P(Damage, ABlockBeyondTheBudget) {
  expect_found(with(first(is_assignment),
                    [&](Op& op) { op.block = BlockIndex(planned_.options.num_blocks); }),
               fmt::format("gets block {0} of {0}", planned_.options.num_blocks));
}

TEST_P(Damage, EveryWrongBlockOfADrop) {
  for (OpIndex i{0}; i < planned_.plan.ops.size(); ++i) {
    if (planned_.plan.ops[i].kind != OpKind::Drop) continue;
    EXPECT_FALSE(is_good(with(i, [](Op& op) { op.block = BlockIndex(op.block ^ 1); })));
  }
}

TEST_P(Damage, ALoadThatCopiesNothing) {
  for (OpIndex i{0}; i < planned_.plan.ops.size(); ++i) {
    if (!is_load(planned_.plan.ops[i])) continue;
    expect_found(with(i, [](Op& op) { op.from = Tier::None; }),
                 "does not hold what was written last");
  }
}

TEST_P(Damage, ALoadOfAPlaneThatIsNotCopied) {
  expect_found(with(first(is_load), [](Op& op) { op.plane = kWeightPlane + 1; }),
               "moves plane 1, which is not copied");
}

TEST_P(Damage, AMoveThatDoesNotExist) {
  expect_found(with(first(is_load), [](Op& op) { op.to = Tier::Host; }), "is no move");
}

TEST_P(Damage, ALoadOfAChunkThatWasNeverStored) {
  const OpIndex sums = first([](const Op& op) {
    return op.kind == OpKind::Move && op.from == Tier::None &&
           op.chunk.space == Space::GradientSums;
  });
  expect_found(with(sums, [](Op& op) { op.from = Tier::Host; }), "has no content in host memory");
}

TEST_P(Damage, RoundingBeforeTheLastContribution) {
  const OpIndex finish = first(is_kind(OpKind::Round));
  uint32_t run = finish;
  while (planned_.plan.ops[run].kind != OpKind::Call) --run;
  expect_found(test::with_op_before(planned_.plan, finish, OpIndex(run)), "contributions");
}

TEST_P(Damage, AStoreAndTheLoadThatReusesItsBlock) {
  const Plan& plan = planned_.plan;
  int num_tried = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind != OpKind::Drop) continue;
    for (const OpIndex w : plan.waits_of(plan.ops[i])) {
      if (!is_store(plan.ops[w])) continue;
      ++num_tried;
      EXPECT_FALSE(is_good(test::with_op_before(plan, i, w)))
          << "drop " << i << " before store " << w;
    }
  }
  EXPECT_GT(num_tried, 5);
}

TEST_P(Damage, WeightsAreNotStored) {
  const OpIndex store = first(is_store);
  expect_found(with(store,
                    [](Op& op) {
                      op.chunk = {Space::Weights, 0};
                    }),
               "no place in host memory");
}

TEST_P(Damage, TheWrongGradientBuffer) {
  const OpIndex update = first(is_kind(OpKind::Update));
  expect_found(
      with(update, [](Op& op) { op.gradient_buffer = BufferIndex(op.gradient_buffer ^ 1); }),
      "does not hold the gradient");
  expect_found(with(update, [](Op& op) { op.gradient_buffer = kNone; }), "gradient buffer");
}

TEST_P(Damage, AGradientOverAnother) {
  const auto is_gradient = [](const Op& op) {
    return is_store(op) && op.chunk.space == Space::Gradients;
  };
  const OpIndex a = first(is_gradient);
  const OpIndex b = first(is_gradient, a + 1);
  expect_found(with(b, [&](Op& op) { op.gradient_buffer = planned_.plan.ops[a].gradient_buffer; }),
               "does not hold the gradient");
}

TEST_P(Damage, CallsOutOfOrder) {
  const OpIndex a = first(is_kind(OpKind::Call));
  const OpIndex b = first(is_kind(OpKind::Call), a + 1);
  Plan plan = planned_.plan;
  std::swap(plan.ops[a].call, plan.ops[b].call);
  expect_found(plan, "runs call 1, the next is 0");
}

TEST_P(Damage, ANormTooEarly) {
  const OpIndex norm = first(is_kind(OpKind::Norm));
  uint32_t store = norm;
  while (!is_store(planned_.plan.ops[store])) --store;
  expect_found(test::with_op_before(planned_.plan, norm, OpIndex(store)), "comes after the norm");
}

TEST_P(Damage, WrongCounts) {
  for (const auto& change : std::vector<std::function<void(Plan&)>>{
           [](Plan& p) { ++p.num_blocks; }, [](Plan& p) { --p.peak_blocks; },
           [](Plan& p) { p.loaded_bytes += 2; }, [](Plan& p) { p.stored_bytes -= 2; },
           [](Plan& p) { p.stored_sums = {}; }, [](Plan& p) { p.stored_activations = {}; }}) {
    Plan plan = planned_.plan;
    change(plan);
    ASSERT_EQ(find_problems(plan).size(), 1u);
    expect_found(plan, "plan: says");
  }
}

TEST_P(Damage, TheWrongStream) {
  for (size_t i = 0; i < planned_.plan.ops.size(); i += 7) {
    EXPECT_FALSE(is_good(with(OpIndex(i), [](Op& op) {
      op.stream = static_cast<StreamKind>((static_cast<int>(op.stream) + 1) % kNumStreamKinds);
    })));
  }
}

TEST_P(Damage, AWaitForALaterOperation) {
  Plan plan = planned_.plan;
  ASSERT_FALSE(plan.waits.empty());
  plan.waits[0] = OpIndex(plan.ops.size() - 1);
  expect_found(plan, "does not come before it");
}

TEST_P(Damage, AnEvaluationThatUpdates) {
  PlanOptions options = planned_.options;
  options.update = false;
  const auto messages = validate(planned_.plan, case_.trace, case_.layout, options);
  EXPECT_TRUE(std::ranges::any_of(messages, [](const std::string& m) {
    return m.find("no place in an evaluation") != std::string::npos;
  }));
}

TEST_P(Damage, MessagesNameOperationChunkAndBlock) {
  const OpIndex load = first(is_load);
  const Op& op = planned_.plan.ops[load];
  const auto messages = find_problems(with(load, [](Op& o) {
    o.from = Tier::None;
    o.stream = StreamKind::Compute;
  }));
  ASSERT_FALSE(messages.empty());
  EXPECT_NE(messages[0].find("op "), std::string::npos);
  EXPECT_NE(messages[0].find(fmt::format("weights chunk {} in block {}", op.chunk.index, op.block)),
            std::string::npos)
      << messages[0];
}

INSTANTIATE_TEST_SUITE_P(Plans, Damage, testing::Bool(),
                         [](const auto& info) { return info.param ? "Clipped" : "Unclipped"; });

TEST(Validate, AnUpdateBeforeTheNormIsFoundIfThePlanClips) {
  const Case c = test::make_case({.num_layers = 3}, 2);
  const Planned planned = test::plan_case(c, test::smallest_blocks(c), false);
  PlanOptions clipped = planned.options;
  clipped.update_after_norm = true;
  const auto messages = validate(planned.plan, c.trace, c.layout, clipped);
  ASSERT_FALSE(messages.empty());
  EXPECT_NE(messages[0].find("updated before the norm"), std::string::npos) << messages[0];
}

TEST(Validate, MissingWaitsAreFoundInManyPlans) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Case c = test::make_case({.num_layers = 2,
                                    .num_micro_batches = 1 + uint32_t(seed % 2),
                                    .tied = seed % 3 == 0,
                                    .recompute = seed % 2 == 0,
                                    .max_elements = 120'000},
                                   seed);
    const Planned planned = test::plan_case(c, test::smallest_blocks(c) + seed % 3, seed % 2 == 0,
                                            seed % 4 < 2, 2, seed % 5 == 0 ? 1 : 0);
    const Plan& plan = planned.plan;
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      for (const OpIndex w : plan.waits_of(plan.ops[i])) {
        const Plan damaged = test::without_wait(plan, i, w);
        if (test::reachability(damaged)[i][w]) continue;
        EXPECT_FALSE(validate(damaged, c.trace, c.layout, planned.options).empty())
            << "seed " << seed << ", op " << i << " without its wait for op " << w;
      }
    }
  }
}

/// A plan for slices of a classifier allocates too few gradient sums for a call that uses all rows.
TEST(Validate, MissingChunksOfOtherRowsAreFound) {
  Case c = test::make_case(
      {.num_layers = 2, .tied = true, .num_head_slices = 3, .max_elements = 600'000}, 8);
  const Planned planned = test::plan_case(c, test::smallest_blocks(c) + 4, true);
  ASSERT_TRUE(validate(planned.plan, c.trace, c.layout, planned.options).empty());
  for (ParameterUse& use : c.trace.uses) {
    if (!use.gradient || use.rows.count == 0) continue;
    const RowRange rows = std::exchange(use.rows, RowRange{});
    EXPECT_FALSE(validate(planned.plan, c.trace, c.layout, planned.options).empty()) << rows.first;
    use.rows = rows;
  }
}

TEST(Validate, ALoadAfterTheUpdateIsFound) {
  // Weight 0 is loaded and read again after its last gradient, so its update comes after that read.
  const Case c = test::make_case_from_text("r0 w0 w1 r0 w1", 2, 65536, 1);
  const Planned planned = test::plan_case(c, test::smallest_blocks(c), false);
  const Plan& plan = planned.plan;
  ASSERT_TRUE(validate(plan, c.trace, c.layout, planned.options).empty());
  const auto is_load_0 = [](const Op& op) {
    return is_load(op) && op.chunk == ChunkId{Space::Weights, 0};
  };
  const auto gradient = find_op(plan, [](const Op& op) { return op.call == 1; });
  ASSERT_TRUE(gradient);
  const auto load = find_op(plan, is_load_0, *gradient);
  const auto update = find_op(plan, is_kind(OpKind::Update));
  ASSERT_TRUE(load && update);
  ASSERT_EQ(plan.ops[*update].chunk.index, 0u);
  const auto messages =
      validate(test::with_op_before(plan, *update, *load), c.trace, c.layout, planned.options);
  EXPECT_TRUE(std::ranges::any_of(messages, [](const std::string& m) {
    return m.find("weights chunk 0 is read after its update") != std::string::npos;
  })) << fmt::format("{}", fmt::join(messages, "\n"));
}

}  // namespace
}  // namespace ebb
