#include <gtest/gtest.h>

#include <algorithm>
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

TEST(KeptMappings, ChunksReturnToTheirBlocksInTheSameTime) {
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
    EXPECT_EQ(plan.ops.size(), planned.plan.ops.size());
    EXPECT_LE(num_mappings(plan), num_mappings(planned.plan));
    num_before += num_mappings(planned.plan);
    num_after += num_mappings(plan);
    for (const std::string& m : validate(plan, c.trace, c.layout, planned.options)) {
      ADD_FAILURE() << m;
    }
  }
  EXPECT_LT(num_after, num_before * 2 / 3);
}

/// A plan of three blocks, in which chunks 0 and 1 are loaded two times.
test::WrittenPlan plan_with_two_chunks(double second_run_s) {
  using namespace test;
  const auto weights = [](uint32_t chunk, uint32_t block, Op op) {
    op.chunk = {Space::Weights, chunk};
    op.block = BlockIndex(block);
    return op;
  };
  const double end_s = second_run_s;
  WrittenPlan written{
      {weights(0, 0, kLoad), {0, 1}},
      {weights(1, 1, kLoad), {1, 2}},
      {kRun, {1, 2}, {0}},
      {kRun, {2, end_s}, {1}},
      {weights(2, 2, kLoad), {2, 3}},
      {kRun, {end_s, end_s + 1}, {4}},
      {weights(0, 0, kDrop), {end_s + 1, end_s + 1}, {2}},
      {weights(1, 0, kLoad), {end_s + 1, end_s + 2}},
      {weights(1, 1, kDrop), {end_s + 2, end_s + 2}, {3}},
      {weights(0, 1, kLoad), {end_s + 2, end_s + 3}},
      {kRun, {end_s + 3, end_s + 4}, {7, 9}},
      {weights(1, 0, kDrop), {end_s + 4, end_s + 4}, {10}},
      {weights(0, 1, kDrop), {end_s + 4, end_s + 4}, {10}},
      {weights(2, 2, kDrop), {end_s + 4, end_s + 4}, {5}},
  };
  written.plan.num_blocks = written.plan.peak_blocks = 3;
  return written;
}

TEST(KeptMappings, AChunkThatComesBackGetsItsBlock) {
  const test::WrittenPlan written = plan_with_two_chunks(3);
  EXPECT_EQ(num_mappings(written.plan), 4);
  const Plan plan = with_kept_mappings(written.plan, written.times).value();
  EXPECT_EQ(num_mappings(plan), 0);
  const std::vector<BlockIndex> blocks = blocks_of(plan);  // of chunks 0, 1, 2, 1, 0
  ASSERT_EQ(blocks.size(), 5);
  EXPECT_EQ(blocks[1], blocks[3]);
  EXPECT_EQ(blocks[0], blocks[4]);
  EXPECT_NE(blocks[0], blocks[1]);
}

/// Chunk 1 comes back when its block is still used.
TEST(KeptMappings, ABlockThatIsNotFreeIsNotWaitedFor) {
  test::WrittenPlan written = plan_with_two_chunks(3);
  written.times[3].end_s = 4.5;  // the call with chunk 1, whose load starts again at 4
  const Plan plan = with_kept_mappings(written.plan, written.times).value_or(written.plan);
  const std::vector<BlockIndex> blocks = blocks_of(plan);
  ASSERT_EQ(blocks.size(), 5);
  EXPECT_NE(blocks[1], blocks[3]);
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
