#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "chunk/index_format.h"
#include "device/errors.h"
#include "scheduler/plan/block_need.h"
#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/validate.h"
#include "tests/scheduler/plan_cases.h"
#include "tests/scheduler/plan_edits.h"
#include "tests/scheduler/plan_reference.h"

namespace ebb {
namespace {

using test::Case;
using test::is_load;
using test::Planned;

std::string problems(const Case& c, const Planned& planned) {
  std::string text;
  for (const std::string& m : validate(planned.plan, c.trace, c.layout, planned.options)) {
    text += m + '\n';
  }
  return text;
}

uint64_t num_loads(const Plan& plan) {
  return static_cast<uint64_t>(std::count_if(plan.ops.begin(), plan.ops.end(), is_load));
}

uint64_t num_assignments(const Plan& plan) {
  return static_cast<uint64_t>(std::count_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) {
    return op.kind == OpKind::Move && op.to == Tier::Device;
  }));
}

Plan least_traffic_plan(const Case& c, uint32_t num_blocks) {
  return make_plan(c.trace, c.layout, {.num_blocks = num_blocks, .least_traffic = true});
}

uint32_t full_blocks(const Case& c) { return full_num_blocks(c.trace, c.layout, {}); }

struct Way {
  bool clipped, defer, resident;
  uint32_t device_updates = 0, kept_sums = 0;
};
constexpr Way kWays[] = {
    {false, false, false},   {false, true, false},       {false, false, true},
    {false, true, true},     {true, false, false},       {true, true, true},
    {false, false, true, 2}, {false, true, false, 1},    {true, true, false, 2},
    {true, false, false, 1}, {false, false, true, 0, 2}, {true, true, false, 1, 100}};

TEST(Plan, EveryBudgetGivesAValidPlan) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const Case c = test::make_any_case(seed);
    const uint32_t smallest = test::smallest_blocks(c), resident = full_blocks(c);
    ASSERT_LE(smallest, resident);
    const uint32_t stride = std::max(1u, (resident - smallest) / 6);
    for (uint32_t blocks = smallest; blocks <= resident + 1; blocks += stride) {
      for (const Way& way : kWays) {
        const Planned planned =
            test::plan_case(c, blocks, way.clipped, way.defer, way.resident ? blocks : 0,
                            way.device_updates, way.kept_sums);
        ASSERT_EQ(problems(c, planned), "")
            << "seed " << seed << ", " << blocks << " blocks, clipped " << way.clipped << '\n'
            << to_string(planned.plan, c.trace);
        EXPECT_LE(planned.plan.peak_blocks, blocks);
      }
    }
  }
}

TEST(Plan, KeptSumsAreNotStored) {
  int num_fewer = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c =
        test::make_case({.num_layers = 4, .num_micro_batches = 3, .tied = seed % 2 == 1}, seed);
    const uint32_t smallest = test::smallest_blocks(c);
    const uint32_t blocks = smallest + (full_blocks(c) - smallest) / 2;
    const Plan all = test::plan_case(c, blocks, false).plan;
    for (const uint32_t kept_sums : {1u, 2u, 100u}) {
      const Plan plan = test::plan_case(c, blocks, false, false, 0, 0, kept_sums).plan;
      const uint32_t num_kept = plan.count(&ChunkRecord::has_kept_sums);
      EXPECT_LE(num_kept, kept_sums);
      EXPECT_GT(num_kept, 0u);
      const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
      for (const ChunkTraceItem& item : chunk_trace.items) {
        if (!item.is_round() || !plan.chunks[item.rounded_chunk].keeps_sums) continue;
        for (const ChunkUse& use : chunk_trace.uses_of(item)) {
          const ChunkId id = chunk_trace.chunk_id(use.chunk);
          EXPECT_FALSE(id.space == Space::GradientSums &&
                       std::ranges::count(plan.stored_sums, id.index) > 0);
        }
      }
      num_fewer += plan.stored_sums.size() < all.stored_sums.size();
    }
  }
  EXPECT_GT(num_fewer, 20);
}

TEST(Plan, AnEvaluationHasNoGradients) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c = test::make_case(
        {.num_layers = 5, .num_micro_batches = 2, .training = false, .tied = seed % 2 == 1}, seed);
    for (uint32_t more = 0; more < 4; ++more) {
      const PlanOptions options{.num_blocks = test::smallest_blocks(c, false) + more,
                                .update = false};
      const Planned planned{options, make_plan(c.trace, c.layout, options)};
      ASSERT_EQ(problems(c, planned), "");
      EXPECT_EQ(planned.plan.stored_bytes, 0u);
      EXPECT_EQ(planned.plan.gradient_buffers, 0u);
    }
  }
}

TEST(Plan, EvictsTheChunkWithTheFurthestNextUse) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    const uint32_t smallest = test::smallest_blocks(c), resident = full_blocks(c);
    const uint32_t stride = std::max(1u, (resident - smallest) / 5);
    for (uint32_t blocks = smallest; blocks <= resident; blocks += stride) {
      const Plan plan = least_traffic_plan(c, blocks);
      const test::Assignments expected = test::count_by_scanning(chunk_trace, blocks);
      EXPECT_EQ(num_assignments(plan), expected.loads + expected.creates)
          << "seed " << seed << ", " << blocks << " blocks";
    }
  }
}

TEST(Plan, NoOtherEvictionNeedsFewerAssignments) {
  int num_tried = 0;
  uint64_t loads = 0, fewest_loads = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_case({.num_layers = 3,
                                    .tied = seed % 2 == 1,
                                    .recompute = seed % 3 == 1,
                                    .max_elements = 40'000},
                                   seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    if (chunk_trace.num_flat() > 16) continue;
    for (uint32_t blocks = test::smallest_blocks(c); blocks <= full_blocks(c); ++blocks) {
      const Plan plan = least_traffic_plan(c, blocks);
      EXPECT_EQ(num_assignments(plan), test::fewest_by_trying_all(chunk_trace, blocks, false))
          << "seed " << seed << ", " << blocks << " blocks";
      loads += num_loads(plan);
      fewest_loads += test::fewest_by_trying_all(chunk_trace, blocks, true);
      ++num_tried;
    }
  }
  EXPECT_GT(num_tried, 60);
  EXPECT_LE(static_cast<double>(loads), 1.02 * static_cast<double>(fewest_loads));
}

/// Protecting the chunks that were used last costs only a little traffic.
TEST(Plan, ProtectedChunksCostLittleTraffic) {
  size_t bytes = 0, least = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const uint32_t smallest = test::smallest_blocks(c), resident = full_blocks(c);
    for (uint32_t blocks : {smallest, (smallest + resident) / 2, resident}) {
      const Plan plan = test::plan_case(c, blocks, false).plan;
      bytes += plan.loaded_bytes + plan.stored_bytes;
      const Plan other = least_traffic_plan(c, blocks);
      least += other.loaded_bytes + other.stored_bytes;
    }
  }
  EXPECT_LE(static_cast<double>(bytes), 1.04 * static_cast<double>(least));
}

/// Resident and protected chunks occupy blocks that a plan of least traffic would use. The plan
/// moves no more than a plan of least traffic without these blocks.
TEST(Plan, ResidentWeightsCostNoMoreThanTheirBlocks) {
  int num_tried = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    for (uint32_t blocks = test::smallest_blocks(c); blocks <= full_blocks(c); ++blocks) {
      const Plan plan = test::plan_case(c, blocks, false, false, 3).plan;
      const uint32_t resident_chunks = plan.count(&ChunkRecord::ends_on_device);
      const uint32_t others = blocks - resident_chunks - (blocks + 7) / 8;
      if (resident_chunks == 0 || others < test::smallest_blocks(c)) continue;
      const test::Assignments most = test::count_by_scanning(chunk_trace, others);
      EXPECT_LE(num_assignments(plan), most.loads + most.creates)
          << "seed " << seed << ", " << blocks << " blocks";
      ++num_tried;
    }
  }
  EXPECT_GT(num_tried, 60);
}

TEST(Plan, ProtectedChunksCostNoMoreThanTheirBlocks) {
  int num_tried = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const ChunkTrace chunk_trace = make_chunk_trace(c.trace, c.layout, true);
    for (uint32_t blocks = test::smallest_blocks(c); blocks <= full_blocks(c); ++blocks) {
      const uint32_t others = blocks - (blocks + 7) / 8;
      if (others < test::smallest_blocks(c)) continue;
      const test::Assignments most = test::count_by_scanning(chunk_trace, others);
      EXPECT_LE(num_assignments(test::plan_case(c, blocks, false).plan), most.loads + most.creates)
          << "seed " << seed << ", " << blocks << " blocks";
      ++num_tried;
    }
  }
  EXPECT_GT(num_tried, 60);
}

TEST(Plan, TheSmallestNeedIsMinimal) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const BlockNeed need = smallest_need(c.trace, c.layout, true);
    EXPECT_NO_THROW(test::plan_case(c, need.num_blocks, true));
    EXPECT_THROW(test::plan_case(c, need.num_blocks - 1, true), PlanError);
    uint32_t sum = 0;
    for (uint32_t n : need.by_space) sum += n;
    EXPECT_EQ(sum, need.num_blocks);
    EXPECT_FALSE(need.call.empty());
  }
}

TEST(Plan, AResidentPlanLoadsEveryWeightOnce) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const uint32_t resident = full_blocks(c);
    const Plan plan = test::plan_case(c, resident, false).plan;
    EXPECT_EQ(plan.peak_blocks, resident);
    EXPECT_TRUE(plan.stored_sums.empty());
    std::vector<int> loads(c.layout.num_chunks());
    for (const Op& op : plan.ops) {
      if (!is_load(op)) continue;
      ASSERT_EQ(op.chunk.space, Space::Weights);
      ++loads[op.chunk.index];
    }
    for (int n : loads) EXPECT_EQ(n, 1) << "seed " << seed;
    if (resident == test::smallest_blocks(c)) continue;
    EXPECT_GT(num_assignments(test::plan_case(c, resident - 1, false).plan), num_assignments(plan));
  }
}

TEST(Plan, StoresEveryGradientByteOnce) {
  const Case c = test::make_case({.num_layers = 6, .gradient_type = DType::F32}, 11);
  const Plan plan = test::plan_case(c, full_blocks(c), false).plan;
  size_t bytes = 0;
  for (uint32_t i = 0; i < c.layout.num_chunks(Space::Gradients); ++i) {
    bytes += c.layout.used_bytes({Space::Gradients, i});
  }
  EXPECT_EQ(plan.stored_bytes, bytes);
  EXPECT_EQ(bytes, c.layout.num_space_elements() * 4);
}

TEST(Plan, ClippedUpdatesFollowTheNormInForwardOrder) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Plan plan = test::plan_case(c, test::smallest_blocks(c), true).plan;
  const auto norm = test::find_op(plan, [](const Op& op) { return op.kind == OpKind::Norm; });
  ASSERT_TRUE(norm);
  std::vector<uint32_t> updated;
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind != OpKind::Update) continue;
    EXPECT_GT(i, *norm);
    updated.push_back(plan.ops[i].chunk.index);
  }
  EXPECT_EQ(updated.size(), c.layout.num_chunks());
  EXPECT_TRUE(std::ranges::is_sorted(updated));
}

TEST(Plan, UnclippedUpdatesFollowTheirGradients) {
  const Case c = test::make_case({.num_layers = 6}, 5);
  const Plan plan = test::plan_case(c, test::smallest_blocks(c), false).plan;
  EXPECT_EQ(plan.gradient_buffers, 2u);
  std::vector<ChunkIndex> updated;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::Update) updated.push_back(ChunkIndex(op.chunk.index));
  }
  EXPECT_EQ(updated, round_order(c.trace, c.layout));
}

TEST(Plan, AGradientIsRoundedAfterTheLastReadOfItsWeights) {
  // If the gradient of weight 0 were rounded at once, call 3 would read updated weights.
  const Case c = test::make_case_from_text("r0 w0 r1 r0 w1", 2, 65536, 1);
  const Planned planned = test::plan_case(c, test::smallest_blocks(c), false);
  EXPECT_EQ(problems(c, planned), "");
  const auto round =
      test::find_op(planned.plan, [](const Op& op) { return op.kind == OpKind::Round; });
  ASSERT_TRUE(round);
  uint32_t call = *round;
  while (planned.plan.ops[call].kind != OpKind::Call) --call;
  EXPECT_EQ(planned.plan.ops[call].call, 3u);
}

TEST(Plan, LoadsStartAsSoonAsABlockIsFree) {
  // With three blocks, the fourth weight is loaded into the block of the first one as soon as this
  // block is free.
  const Case c = test::make_case_from_text("r0 r1 r2 r3 r4", 5, 65536, 5);
  const PlanOptions options{.num_blocks = 3, .update = false};
  const Plan plan = make_plan(c.trace, c.layout, options);
  std::string text;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::Call) text += fmt::format("run{} ", op.call);
    if (op.kind == OpKind::Drop) text += fmt::format("-{} ", op.chunk.index);
    if (op.kind == OpKind::Move) text += fmt::format("+{}b{} ", op.chunk.index, op.block);
  }
  EXPECT_EQ(text, "+0b0 +1b1 +2b2 run0 -0 +3b0 run1 -1 +4b1 run2 run3 run4 -3 -4 -2 ");
}

TEST(Plan, AllocationsLeaveTheOldestFreeBlocksToLoads) {
  // With six blocks, gradient sums (two chunks for each chunk of weights) get the blocks that other
  // sums have just left, and gradients get the blocks of their weights. The block of a gradient
  // that is not stored yet is reused only if no other block is free.
  const Case c = test::make_case_from_text("r0 r1 r2 r3 r4 r5 w5 w4 w3 w2 w1 w0", 6, 65536, 6);
  const Plan plan = test::plan_case(c, 6, false).plan;
  const auto backward = test::find_op(plan, [](const Op& op) { return op.call == 6; });
  ASSERT_TRUE(backward);
  std::string text;
  for (uint32_t i = *backward; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const char* const what = op.stream == StreamKind::Load ? "load " : "";
    if (op.kind == OpKind::Call) text += fmt::format("run{} ", op.call);
    if (op.call == 10) break;
    if (op.kind == OpKind::Move && op.to == Tier::Device) {
      const char space = "wsga"[static_cast<int>(op.chunk.space)];
      text += fmt::format("{}{}{}b{} ", what, space, op.chunk.index, op.block);
    }
  }
  EXPECT_EQ(text,
            "run6 g5b5 s8b1 s9b0 run7 g4b4 s6b1 s7b0 run8 g3b3 s4b1 s5b0 run9 g2b2 load w1b0 s2b1 "
            "s3b5 run10 ");
}

/// A drop waits for one operation: for the store of the chunk, which runs after its last use, or
/// for the last use.
TEST(Plan, ADropWaitsForOneOperation) {
  int num_behind_stores = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c = test::make_any_case(seed);
    const Plan plan = test::plan_case(c, test::smallest_blocks(c) + 1, true).plan;
    for (const Op& op : plan.ops) {
      if (op.kind != OpKind::Drop || op.num_waits == 0) continue;
      ASSERT_EQ(op.num_waits, 1) << "case " << seed;
      const Op& last = plan.ops[plan.waits_of(op)[0]];
      if (last.kind != OpKind::Move) continue;
      EXPECT_EQ(last.chunk, op.chunk);
      EXPECT_EQ(last.to, Tier::Host);
      ++num_behind_stores;
    }
  }
  EXPECT_GT(num_behind_stores, 0);
}

/// A chunk is loaded again at the same address. The load waits until the other thread has dropped
/// it.
TEST(Plan, AChunkIsLoadedAgainAfterItsDrop) {
  int num_found = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c = test::make_any_case(seed);
    const auto [options, plan] = test::plan_case(c, test::smallest_blocks(c) + 1, true);
    for (OpIndex i{0}; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      for (const OpIndex w : plan.waits_of(op)) {
        const Op& left = plan.ops[w];
        if (left.kind != OpKind::Drop || !(left.chunk == op.chunk)) continue;
        EXPECT_NE(left.stream, op.stream);
        const Plan damaged = test::without_wait(plan, i, w);
        if (test::reachability(damaged)[i][w]) continue;  // another wait implies this one
        ++num_found;
        const auto messages = validate(damaged, c.trace, c.layout, options);
        const bool is_found = std::ranges::any_of(messages, [](const std::string& m) {
          return m.find("from its block") != std::string::npos;
        });
        EXPECT_TRUE(is_found) << "case " << seed << ", op " << i;
      }
    }
  }
  EXPECT_GT(num_found, 0);
}

TEST(Plan, IsAFunctionOfItsInputs) {
  const Case c = test::make_any_case(17);
  const uint32_t blocks = test::smallest_blocks(c) + 1;
  EXPECT_EQ(to_string(test::plan_case(c, blocks, true).plan, c.trace),
            to_string(test::plan_case(c, blocks, true).plan, c.trace));
}

}  // namespace
}  // namespace ebb
