#include <gtest/gtest.h>

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/plan/kept_mappings.h"
#include "scheduler/plan/validate.h"
#include "tests/scheduler/timed_plans.h"

namespace ebb {
namespace {

/// The blocks of the moves to the device, in the order of the plan.
std::vector<BlockIndex> blocks_of(const Plan& plan) {
  std::vector<BlockIndex> blocks;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::Move && op.to == Tier::Device) blocks.push_back(op.block);
  }
  return blocks;
}

/// The start of each move to the device, by chunk.
std::map<std::pair<Space, uint32_t>, std::vector<double>> starts_of(const Plan& plan,
                                                                    std::span<const OpTime> times) {
  std::map<std::pair<Space, uint32_t>, std::vector<double>> starts;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind != OpKind::Move || op.to != Tier::Device) continue;
    starts[{op.chunk.space, op.chunk.index}].push_back(times[i].start_s);
  }
  return starts;
}

TEST(KeptMappings, ChunksReturnToTheirBlocksAndNoMoveStartsLater) {
  uint32_t num_before = 0, num_after = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const test::Case c = test::make_any_case(seed);
    const uint32_t num_blocks = test::smallest_blocks(c) + seed % 9;
    const test::Planned planned =
        test::plan_case(c, num_blocks, seed % 2 == 0, seed % 3 == 0, 0, seed % 5);
    const Simulation before = simulate(planned.plan, c.trace, c.layout, test::kSlowMachine);
    const Plan plan = with_kept_mappings(planned.plan, before.ops).value_or(planned.plan);
    const Simulation after = simulate(plan, c.trace, c.layout, test::kSlowMachine);
    EXPECT_LE(after.seconds, before.seconds * (1 + 1e-9));
    const auto starts = starts_of(planned.plan, before.ops);
    for (const auto& [chunk, now] : starts_of(plan, after.ops)) {
      const std::vector<double>& then = starts.at(chunk);
      ASSERT_EQ(now.size(), then.size());
      for (size_t k = 0; k < now.size(); ++k) EXPECT_LE(now[k], then[k] + 1e-9 * before.seconds);
    }
    EXPECT_EQ(plan.ops.size(), planned.plan.ops.size());
    num_before += num_mappings(planned.plan);
    num_after += num_mappings(plan);
    for (const std::string& m : validate(plan, c.trace, c.layout, planned.options)) {
      ADD_FAILURE() << m;
    }
  }
  EXPECT_LT(num_after, num_before * 2 / 3);
}

/// The operation, of this chunk of weights and this block.
Op of_weights(uint32_t chunk, uint32_t block, Op op) {
  op.chunk = {Space::Weights, chunk};
  op.block = BlockIndex(block);
  return op;
}

/// With a third block, chunks 0 and 1 need not change theirs.
TEST(KeptMappings, AChunkThatComesBackGetsItsBlock) {
  using namespace test;
  WrittenPlan written{
      {of_weights(0, 0, kLoad), {0, 1}},
      {of_weights(1, 1, kLoad), {1, 2}},
      {kRun, {1, 2}, {0}},
      {kRun, {2, 3}, {1}},
      {of_weights(0, 0, kDrop), {2, 2}, {2}},
      {of_weights(2, 0, kLoad), {2, 3}},
      {kRun, {3, 4}, {5}},
      {of_weights(1, 1, kDrop), {3, 3}, {3}},
      {of_weights(0, 1, kLoad), {4, 5}},
      {of_weights(2, 0, kDrop), {4, 4}, {6}},
      {of_weights(1, 0, kLoad), {5, 6}},
      {kRun, {6, 7}, {8, 10}},
      {of_weights(0, 1, kDrop), {7, 7}, {11}},
      {of_weights(1, 0, kDrop), {7, 7}, {11}},
  };
  written.plan.num_blocks = written.plan.peak_blocks = 3;
  EXPECT_EQ(num_mappings(written.plan), 4);
  const Plan plan = with_kept_mappings(written.plan, written.times).value();
  EXPECT_EQ(num_mappings(plan), 0);
  const std::vector<BlockIndex> blocks = blocks_of(plan);  // of chunks 0, 1, 2, 0, 1
  ASSERT_EQ(blocks.size(), 5);
  EXPECT_EQ(blocks[0], blocks[3]);
  EXPECT_EQ(blocks[1], blocks[4]);
  EXPECT_NE(blocks[0], blocks[1]);
}

/// Chunk 0 comes back at 10 s. Chunk 2 has taken its block, and is used last until `free_s`. The
/// block of chunk 1 has been free since 5 s.
test::WrittenPlan plan_with_a_return(double free_s) {
  using namespace test;
  WrittenPlan written{
      {of_weights(0, 0, kLoad), {0, 1}},
      {kRun, {1, 2}, {0}},
      {of_weights(1, 1, kLoad), {1, 2}},
      {kRun, {2, 5}, {2}},
      {of_weights(0, 0, kDrop), {2, 2}, {1}},
      {of_weights(2, 0, kLoad), {3, 4}},
      {kRun, {5, free_s}, {5}},
      {of_weights(1, 1, kDrop), {5, 5}, {3}},
      {of_weights(0, 1, kLoad), {10, 11}},
      {kRun, {11, 12}, {8}},
      {of_weights(2, 0, kDrop), {12, 12}, {6}},
      {of_weights(0, 1, kDrop), {12, 12}, {9}},
  };
  written.plan.num_blocks = written.plan.peak_blocks = 2;
  return written;
}

TEST(KeptMappings, AFormerBlockMustHaveBeenFreeForAShortTime) {
  const test::WrittenPlan early = plan_with_a_return(9);
  EXPECT_EQ(num_mappings(early.plan), 2);
  EXPECT_EQ(num_mappings(with_kept_mappings(early.plan, early.times).value()), 0);
  for (const double free_s : {9.99, 10.0, 10.5}) {
    const test::WrittenPlan late = plan_with_a_return(free_s);
    EXPECT_FALSE(with_kept_mappings(late.plan, late.times)) << free_s;
  }
}

/// The weights of a resident chunk return to blocks that the next step expects.
TEST(KeptMappings, APlanWithResidentWeightsStays) {
  uint32_t num_resident = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const test::Case c = test::make_any_case(seed);
    const Plan plan =
        test::plan_case(c, test::smallest_blocks(c) + 4, /*clipped=*/false, false, 2).plan;
    if (plan.count(&ChunkRecord::begins_on_device) == 0) continue;
    ++num_resident;
    const Simulation times = simulate(plan, c.trace, c.layout, test::kSlowMachine);
    EXPECT_FALSE(with_kept_mappings(plan, times.ops));
  }
  EXPECT_GT(num_resident, 0);
}

}  // namespace
}  // namespace ebb
