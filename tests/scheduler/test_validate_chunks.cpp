// The validator must find damage to plans with deferred updates, resident weights and device
// updates, and to the records of their chunks.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/plan/block_need.h"
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

/// A case with a valid plan. first_fault() returns the first message about a damaged plan.
struct PlannedCase {
  Case c;
  Planned planned;

  std::string first_fault(const Plan& plan) const {
    const auto messages = validate(plan, c.trace, c.layout, planned.options);
    return messages.empty() ? "" : messages[0];
  }
  bool has_fault(const Plan& plan, std::string_view text) const {
    return std::ranges::any_of(
        validate(plan, c.trace, c.layout, planned.options),
        [&](const std::string& message) { return message.find(text) != std::string::npos; });
  }
};

/// A plan with deferred updates.
struct Deferring : PlannedCase {
  Deferring() : Deferring(test::make_case({.num_layers = 3}, 2)) {}
  explicit Deferring(const Case& c)
      : PlannedCase{c, test::plan_case(c, test::smallest_blocks(c), true, true)} {}
};

TEST(ValidateChunks, ALoadThatDoesNotWaitForADeferredUpdateIsFound) {
  const Deferring deferring;
  const Plan& plan = deferring.planned.plan;
  ASSERT_EQ(deferring.first_fault(plan), "");
  uint32_t num_damaged = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (!is_load(plan.ops[i]) || plan.ops[i].chunk.space != Space::Weights) continue;
    const Plan damaged = test::without_wait(plan, i, OpIndex(plan.ops[i].chunk.index));
    if (test::reachability(damaged)[i][plan.ops[i].chunk.index]) continue;
    ++num_damaged;
    EXPECT_NE(deferring.first_fault(damaged).find("does not wait for op"), std::string::npos);
  }
  EXPECT_GT(num_damaged, 0u);
}

TEST(ValidateChunks, ALoadBeforeADeferredUpdateIsFound) {
  const Deferring deferring;
  const Plan& plan = deferring.planned.plan;
  const auto load =
      find_op(plan, [](const Op& op) { return is_load(op) && op.chunk.space == Space::Weights; });
  ASSERT_TRUE(load);
  const Plan damaged = test::with_op_before(plan, *load, OpIndex(plan.ops[*load].chunk.index));
  EXPECT_NE(deferring.first_fault(damaged).find("out of date"), std::string::npos);
}

TEST(ValidateChunks, ADeferredUpdateThatIsLostOrMadeTwiceIsFound) {
  const Deferring deferring;
  const Plan& plan = deferring.planned.plan;
  EXPECT_NE(deferring.first_fault(test::without_op(plan, OpIndex(1))), "");
  EXPECT_NE(deferring.first_fault(test::with_op_twice(plan, OpIndex(1))), "");
  Plan unannounced = plan;
  unannounced.chunks.back().update = UpdateTime::AfterNorm;
  EXPECT_NE(deferring.first_fault(unannounced), "");
  Plan other_buffer = plan;
  std::swap(other_buffer.chunks[0].gradient_buffer, other_buffer.chunks[1].gradient_buffer);
  EXPECT_NE(deferring.first_fault(other_buffer), "");
  PlanOptions waiting = deferring.planned.options;
  waiting.schedule.update = UpdateOrder::Wait;
  EXPECT_FALSE(validate(plan, deferring.c.trace, deferring.c.layout, waiting).empty());
}

Planned plan_with_delayed_updates(const Case& c) {
  const PlanOptions options{.num_blocks = test::smallest_blocks(c),
                            .delayed_updates = true,
                            .schedule = {.update = UpdateOrder::Overlap}};
  return {options, make_plan(c.trace, c.layout, options)};
}

TEST(ValidateChunks, MistakesOfDelayedUpdatesAreFound) {
  const Case c = test::make_case({.num_layers = 3}, 2);
  const PlannedCase delaying{c, plan_with_delayed_updates(c)};
  const Plan& plan = delaying.planned.plan;
  ASSERT_EQ(delaying.first_fault(plan), "");
  EXPECT_TRUE(delaying.has_fault(test::without_op(plan, OpIndex(1)), "is not made"));
  Plan resident = plan;
  resident.chunks[0].first_block = resident.chunks[0].last_block = BlockIndex(0);
  EXPECT_TRUE(delaying.has_fault(resident, "which is on a device"));
  Plan on_owner = plan;
  on_owner.chunks[0].tier = Tier::Peer;
  EXPECT_TRUE(delaying.has_fault(on_owner, "which is on a device"));
  Plan deferred = plan;
  deferred.chunks[0].update = UpdateTime::Deferred;
  EXPECT_TRUE(delaying.has_fault(deferred, "is wrong about delayed updates"));
  const auto store = find_op(plan, [](const Op& op) {
    return op.kind == OpKind::Move && op.to == Tier::Host && op.chunk.space == Space::Gradients;
  });
  ASSERT_TRUE(store);
  const OpIndex update = plan.waits_of(plan.ops[*store]).back();
  ASSERT_EQ(plan.ops[update].kind, OpKind::Update);
  EXPECT_TRUE(
      delaying.has_fault(test::without_wait(plan, *store, update), "reads gradient buffer"));
}

TEST(ValidateChunks, RecordsThatDifferFromTheUpdatesAreFound) {
  const Case c = test::make_case({.num_layers = 3}, 2);
  const PlannedCase unclipped{c, test::plan_case(c, test::smallest_blocks(c), false)};
  const Plan& plan = unclipped.planned.plan;
  ASSERT_EQ(unclipped.first_fault(plan), "");
  ASSERT_EQ(plan.gradient_buffers, 2u);
  Plan other_buffer = plan;
  BufferIndex& buffer = other_buffer.chunks[0].gradient_buffer;
  buffer = BufferIndex(1 - buffer);
  EXPECT_TRUE(unclipped.has_fault(other_buffer, "is not that of the record"));
  Plan untrained = plan;
  untrained.chunks[0].update = UpdateTime::Never;
  EXPECT_TRUE(unclipped.has_fault(untrained, "is wrong about its training"));
}

TEST(ValidateChunks, MissingOrWrongRecordsAreFound) {
  const Deferring deferring;
  Plan missing = deferring.planned.plan;
  missing.chunks.pop_back();
  EXPECT_NE(deferring.first_fault(missing).find("has records of"), std::string::npos);
  Plan untrained = deferring.planned.plan;
  untrained.chunks.back().update = UpdateTime::Never;
  EXPECT_NE(deferring.first_fault(untrained), "");
}

Planned plan_with_residents(const Case& c) {
  // With as many gradient buffers as chunks, only the load of a chunk waits for its update.
  const PlanOptions options{
      .num_blocks = test::smallest_blocks(c) + 4,
      .update_after_norm = false,
      .schedule = {.gradient_buffers = c.layout.num_chunks(), .resident_chunks = 3}};
  return {options, make_plan(c.trace, c.layout, options)};
}

/// A plan with resident weights.
struct Holding : PlannedCase {
  Holding() : Holding(test::make_case({.num_layers = 5}, 2)) {}
  explicit Holding(const Case& c) : PlannedCase{c, plan_with_residents(c)} {}
  /// The last load of the first resident chunk.
  OpIndex reload() const {
    const Plan& plan = planned.plan;
    OpIndex last = kNone;
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      if (is_load(plan.ops[i]) &&
          plan.ops[i].chunk ==
              ChunkId{Space::Weights, plan.chunks_by(&ChunkRecord::last_block)[0]}) {
        last = i;
      }
    }
    return last;
  }
};

TEST(ValidateChunks, ResidentWeightsThatAreNotLoadedAgainAreFound) {
  const Holding holding;
  const Plan& plan = holding.planned.plan;
  ASSERT_EQ(holding.first_fault(plan), "");
  EXPECT_NE(holding.first_fault(test::without_op(plan, holding.reload())).find("does not end with"),
            std::string::npos);
}

TEST(ValidateChunks, ResidentWeightsThatAreLoadedBeforeTheirUpdateAreFound) {
  const Holding holding;
  const Plan& plan = holding.planned.plan;
  const OpIndex reload = holding.reload();
  uint32_t num_updates = 0;
  for (const OpIndex w : plan.waits_of(plan.ops[reload])) {
    if (plan.ops[w].kind != OpKind::Update) continue;
    ++num_updates;
    const std::string fault = holding.first_fault(test::without_wait(plan, reload, w));
    EXPECT_NE(fault.find("does not wait for op"), std::string::npos) << fault;
    EXPECT_NE(holding.first_fault(test::with_op_before(plan, reload, w)), "");
  }
  EXPECT_EQ(num_updates, 1u);
}

TEST(ValidateChunks, DifferentResidentWeightsAtTheStartAndTheEndAreFound) {
  const Holding holding;
  Plan lost = holding.planned.plan;
  lost.chunks[lost.chunks_by(&ChunkRecord::first_block).back()].first_block = kNone;
  EXPECT_NE(holding.first_fault(lost).find("is not on the device"), std::string::npos)
      << holding.first_fault(lost);
  Plan forgotten = holding.planned.plan;
  forgotten.chunks[forgotten.chunks_by(&ChunkRecord::last_block).back()].last_block = kNone;
  EXPECT_NE(holding.first_fault(forgotten).find("but does not end with it"), std::string::npos)
      << holding.first_fault(forgotten);
  Plan elsewhere = holding.planned.plan;
  const std::vector<ChunkIndex> resident = elsewhere.chunks_by(&ChunkRecord::first_block);
  elsewhere.chunks[resident[0]].first_block = elsewhere.chunks[resident[1]].first_block;
  EXPECT_NE(holding.first_fault(elsewhere), "");
}

/// A plan with device updates.
struct OnDevice : PlannedCase {
  explicit OnDevice(bool clipped) : OnDevice(test::make_case({.num_layers = 5}, 2), clipped) {}
  OnDevice(const Case& c, bool clipped)
      : PlannedCase{c, test::plan_case(c, test::smallest_blocks(c) + 6, clipped, clipped, 0, 2)} {}
  OpIndex find(OpKind kind) const {
    return *find_op(planned.plan, [&](const Op& op) {
      return op.kind == kind && (kind != OpKind::Update || op.stream == StreamKind::Compute);
    });
  }
};

TEST(ValidateChunks, DamageToDeviceUpdatesIsFound) {
  for (const bool clipped : {false, true}) {
    const OnDevice on_device(clipped);
    const Plan& plan = on_device.planned.plan;
    const std::vector<ChunkIndex> on_it = plan.chunks_that(&ChunkRecord::is_on_device);
    ASSERT_EQ(on_it.size(), 2u);
    ASSERT_EQ(on_device.first_fault(plan), "");
    const OpIndex update = on_device.find(OpKind::Update);
    const OpIndex partials = on_device.find(OpKind::StorePartialNorms);
    const OpIndex finish = plan.waits_of(plan.ops[partials])[0];
    EXPECT_NE(on_device.first_fault(test::without_op(plan, update)), "");
    EXPECT_NE(on_device.first_fault(test::without_op(plan, partials)), "");
    EXPECT_NE(on_device.first_fault(test::with_op_twice(plan, update)), "");
    EXPECT_NE(on_device.first_fault(test::with_op_before(plan, update, finish)), "");
    EXPECT_NE(on_device.first_fault(test::without_wait(plan, partials, finish)), "");
    Plan forgets = plan;
    forgets.chunks[on_it.back()].tier = Tier::Host;
    EXPECT_NE(on_device.first_fault(forgets), "");
    Plan leaves = plan;
    leaves.chunks[on_it.back()].last_block = kNone;
    EXPECT_NE(on_device.first_fault(leaves), "");
  }
}

TEST(ValidateChunks, ADeviceUpdateBeforeTheNormIsFound) {
  const OnDevice on_device(true);
  const Plan& plan = on_device.planned.plan;
  const OpIndex update = on_device.find(OpKind::Update), norm = on_device.find(OpKind::Norm);
  EXPECT_NE(on_device.first_fault(test::without_wait(plan, update, norm)).find("makes the norm"),
            std::string::npos);
  EXPECT_NE(on_device.first_fault(test::with_op_before(plan, update, norm)), "");
}

/// An evaluation neither loads nor drops the chunks that the device updates.
TEST(ValidateChunks, AnEvaluationThatMovesChunksOfDeviceUpdatesIsFound) {
  const Case c = test::make_case({.num_layers = 5}, 2);
  const uint32_t blocks = smallest_need(c.trace, c.layout, false).num_blocks + 2;
  // The state of the first `num_on_device` chunks is on the device.
  const auto options_with = [&](uint32_t num_on_device) {
    PlanOptions options{.num_blocks = blocks, .update = false};
    options.chunks_of_step.resize(c.layout.num_chunks());
    for (uint32_t i = 0; i < num_on_device; ++i) options.chunks_of_step[i].tier = Tier::Device;
    return options;
  };
  for (const uint32_t num_planned : {0u, 1u, 2u}) {
    const Plan plan = make_plan(c.trace, c.layout, options_with(num_planned));
    const bool is_valid = validate(plan, c.trace, c.layout, options_with(2)).empty();
    EXPECT_EQ(is_valid, num_planned == 2) << num_planned;
  }
}

}  // namespace
}  // namespace ebb
