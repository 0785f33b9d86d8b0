// What one step leaves to the next: deferred updates, weights that stay on the device, and chunks
// that the device updates.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scheduler/plan/block_need.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/validate.h"
#include "tests/scheduler/plan_cases.h"
#include "tests/scheduler/plan_edits.h"

namespace ebb {
namespace {

using test::Case;
using test::Planned;

TEST(PlanAcrossSteps, DeferredUpdatesComeFirstAndLoadsWaitForThem) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Plan clipped = test::plan_case(c, test::smallest_blocks(c), true, true).plan;
  ASSERT_EQ(clipped.count(&ChunkRecord::is_deferred), c.layout.num_chunks());
  for (uint32_t i = 0; i < c.layout.num_chunks(); ++i) {
    EXPECT_EQ(clipped.ops[i].kind, OpKind::Update);
    EXPECT_TRUE(clipped.ops[i].deferred);
    EXPECT_EQ(clipped.ops[i].chunk.index, i);
  }
  for (const Op& op : clipped.ops) {
    if (op.kind != OpKind::Move || op.from != Tier::Host || op.chunk.space != Space::Weights) {
      continue;
    }
    const auto waits = clipped.waits_of(op);
    EXPECT_NE(std::ranges::find(waits, op.chunk.index), waits.end());
  }
  EXPECT_EQ(make_flush_plan(clipped).ops.size(), c.layout.num_chunks());
}

TEST(PlanAcrossSteps, UnclippedStepsDeferEverySecondUpdate) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Planned planned = test::plan_case(c, test::smallest_blocks(c), false, true);
  const Plan& plan = planned.plan;
  const std::vector<ChunkIndex> order = round_order(c.trace, c.layout);
  std::vector<ChunkIndex> expected;
  // The next forward begins with the last two chunks, so their updates are not deferred.
  for (size_t i = 0; i + 2 < order.size(); ++i) {
    if (i % 2 == 1) expected.push_back(order[i]);
  }
  std::ranges::sort(expected);
  std::vector<uint32_t> uses_of_buffer(plan.gradient_buffers, 0);
  const std::vector<ChunkIndex> deferred = plan.chunks_that(&ChunkRecord::is_deferred);
  for (const ChunkIndex chunk : deferred) ++uses_of_buffer[plan.chunks[chunk].gradient_buffer];
  EXPECT_EQ(deferred, expected);
  EXPECT_GT(deferred.size(), 3u);
  EXPECT_EQ(*std::ranges::max_element(uses_of_buffer), 1u);
  for (const Op& op : plan.ops) {
    const bool now = op.kind == OpKind::Update && !op.deferred;
    if (now) {
      EXPECT_EQ(uses_of_buffer[op.gradient_buffer], 0u) << op.chunk.index;
    }
  }
  EXPECT_EQ(plan.gradient_buffers, deferred.size() + planned.options.schedule.gradient_buffers);
  const auto updates = std::ranges::count(plan.ops, OpKind::Update, &Op::kind);
  EXPECT_EQ(updates, c.layout.num_chunks());
}

TEST(PlanAcrossSteps, ResidentWeightsAreLoadedAfterTheirUpdate) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const uint32_t blocks = test::smallest_blocks(c) + 4;
  const Plan plan = test::plan_case(c, blocks, false, false, 3).plan;
  const std::vector<ChunkIndex> resident = plan.chunks_by(&ChunkRecord::first_block);
  const std::vector<ChunkIndex> order = round_order(c.trace, c.layout);
  EXPECT_EQ(resident,
            std::vector(order.begin(), order.begin() + 3));  // the chunks that are updated first
  std::vector<ChunkIndex> at_end = plan.chunks_by(&ChunkRecord::last_block);
  EXPECT_TRUE(std::ranges::is_permutation(at_end, resident));
  for (const ChunkIndex chunk : resident) {
    const auto update = test::find_op(
        plan, [&](const Op& op) { return op.kind == OpKind::Update && op.chunk.index == chunk; });
    const auto load = [&](const Op& op) {
      return op.kind == OpKind::Move && op.from == Tier::Host &&
             op.chunk == ChunkId{Space::Weights, chunk};
    };
    ASSERT_TRUE(update);
    const auto back = test::find_op(plan, load, *update);
    ASSERT_TRUE(back);
    EXPECT_NE(std::ranges::find(plan.waits_of(plan.ops[*back]), *update),
              plan.waits_of(plan.ops[*back]).end());
    EXPECT_FALSE(test::find_op(plan, load, *back + 1));
    // It is loaded after all weights that this step needs.
    EXPECT_FALSE(test::find_op(
        plan,
        [&](const Op& op) {
          return op.kind == OpKind::Move && op.from == Tier::Host &&
                 std::ranges::find(resident, op.chunk.index) == resident.end();
        },
        *back + 1));
  }
  EXPECT_LE(plan.loaded_bytes, test::plan_case(c, blocks, false).plan.loaded_bytes);
}

TEST(PlanAcrossSteps, KeepsNoWeightsWithClippingOrWithoutFreeBlocks) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const uint32_t smallest = test::smallest_blocks(c);
  EXPECT_EQ(
      test::plan_case(c, smallest + 4, true, true, 3).plan.count(&ChunkRecord::ends_on_device), 0u);
  EXPECT_EQ(test::plan_case(c, smallest, false, false, 3).plan.count(&ChunkRecord::ends_on_device),
            0u);
  EXPECT_EQ(
      test::plan_case(c, smallest + 2, false, false, 3).plan.count(&ChunkRecord::ends_on_device),
      2u);
}

TEST(PlanAcrossSteps, ResidentWeightsHaveNoDeferredUpdates) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Plan plan =
      test::plan_case(c, full_num_blocks(c.trace, c.layout, {}), false, true, UINT32_MAX).plan;
  EXPECT_GT(plan.count(&ChunkRecord::is_deferred), 0u);
  for (const ChunkRecord& chunk : plan.chunks) {
    EXPECT_FALSE(chunk.is_deferred() && chunk.ends_on_device());
  }
  EXPECT_GT(plan.count(&ChunkRecord::ends_on_device), 2u);
}

TEST(PlanAcrossSteps, WarmUpLoadsResidentWeightsAndFlushDropsThem) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Plan plan = test::plan_case(c, test::smallest_blocks(c) + 6, false, true, 4).plan;
  const Plan fill = make_warm_up_plan(plan, c.layout), flush = make_flush_plan(plan);
  ASSERT_EQ(plan.count(&ChunkRecord::ends_on_device), 4u);
  EXPECT_EQ(fill.count(&ChunkRecord::begins_on_device), 0u);
  EXPECT_EQ(fill.chunks_by(&ChunkRecord::last_block), plan.chunks_by(&ChunkRecord::first_block));
  EXPECT_EQ(fill.ops.size(), 4u);
  EXPECT_EQ(flush.chunks_by(&ChunkRecord::first_block), plan.chunks_by(&ChunkRecord::last_block));
  EXPECT_EQ(flush.count(&ChunkRecord::ends_on_device), 0u);
  EXPECT_EQ(flush.ops.size(), plan.count(&ChunkRecord::is_deferred) + 4);
}

/// The device updates the chunks whose gradients are finished last. None of their planes moves.
TEST(PlanAcrossSteps, ChunksOfDeviceUpdatesStayOnTheDevice) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  for (const bool clipped : {false, true}) {
    const uint32_t blocks = test::smallest_blocks(c) + 6;
    const Plan plan = test::plan_case(c, blocks, clipped, true, 0, 2).plan;
    std::vector<ChunkIndex> last = round_order(c.trace, c.layout);
    last.erase(last.begin(), last.end() - 2);
    std::ranges::sort(last);
    EXPECT_EQ(plan.chunks_that(&ChunkRecord::is_on_device), last);
    EXPECT_EQ(plan.count(&ChunkRecord::begins_on_device), 2u);
    for (const Op& op : plan.ops) {
      const uint32_t chunk = op.chunk.space == Space::Gradients
                                 ? op.chunk.index / c.layout.gradient_chunks_per_chunk()
                                 : op.chunk.index;
      if (std::ranges::find(last, chunk) == last.end()) continue;
      EXPECT_NE(op.kind == OpKind::Move && op.chunk.space == Space::Weights, true);
      EXPECT_NE(op.stream == StreamKind::Store && op.chunk.space == Space::Gradients, true);
      if (op.kind == OpKind::Update) {
        EXPECT_EQ(op.stream, StreamKind::Compute);
      }
    }
    const Plan without = test::plan_case(c, blocks, clipped, true).plan;
    EXPECT_LT(plan.stored_bytes, without.stored_bytes);
    const Plan flush = make_flush_plan(plan), fill = make_warm_up_plan(plan, c.layout);
    const auto num_moves = [](const Plan& p) {
      return std::ranges::count(p.ops, OpKind::Move, &Op::kind);
    };
    EXPECT_EQ(num_moves(make_initialise_plan(plan)), 2);
    EXPECT_TRUE(fill.ops.empty());
    EXPECT_EQ(flush.count(&ChunkRecord::ends_on_device), 2u);
    EXPECT_EQ(flush.ops.size(), plan.count(&ChunkRecord::is_deferred));
    // Their gradients have no gradient buffers.
    EXPECT_LE(plan.gradient_buffers, c.layout.num_chunks() - 2);
    for (const Op& op : plan.ops) {
      EXPECT_TRUE(op.gradient_buffer == kNone || op.gradient_buffer < plan.gradient_buffers);
    }
  }
}

}  // namespace
}  // namespace ebb
