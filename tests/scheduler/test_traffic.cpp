// The reason of each load and store, on plans that are small enough to be counted by hand, and sums
// over random plans.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/plan/traffic.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb::tests_of_traffic {
namespace {

using test::Case;

constexpr uint64_t kChunk = 131072;  // bytes of a chunk of weights, which one parameter fills

/// "load weights 0 first use; store gradients 1 update"
std::string moves_of(const Plan& plan) {
  std::string text;
  const std::vector<MoveReason> reasons = reasons_of_moves(plan);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (reasons[i] == MoveReason::None) continue;
    text += text.empty() ? "" : "; ";
    text += std::string(name_of(op)) + " " + std::string(name_of(op.chunk.space)) + " " +
            std::to_string(op.chunk.index) + " " + std::string(name_of(reasons[i]));
  }
  return text;
}

Plan evaluation_plan(const Case& c, uint32_t num_blocks) {
  return make_plan(c.trace, c.layout, {.num_blocks = num_blocks, .update = false});
}

TEST(Traffic, AChunkThatWasEvictedIsLoadedAgain) {
  const Case c = test::make_case_from_text("r0 r1 r0", 2, 65536, 3);
  EXPECT_EQ(moves_of(evaluation_plan(c, 1)),
            "load weights 0 first use; load weights 1 first use; load weights 0 evicted");
  EXPECT_EQ(moves_of(evaluation_plan(c, 2)), "load weights 0 first use; load weights 1 first use");
}

TEST(Traffic, AFinishedGradientIsStoredForItsUpdate) {
  const Case c = test::make_case_from_text("r0 w0", 1, 65536, 1);
  const Plan plan = test::plan_case(c, 8, true).plan;
  EXPECT_EQ(moves_of(plan), "load weights 0 first use; store gradients 0 update");
  const Traffic traffic = traffic_of(plan, c.layout);
  EXPECT_EQ(traffic.of(TrafficClass::Weights, MoveReason::FirstUse).loaded_bytes, kChunk);
  EXPECT_EQ(traffic.of(TrafficClass::Gradients, MoveReason::Update).stored_bytes, kChunk);
  EXPECT_EQ(traffic.total().bytes(), 2 * kChunk);
}

/// A plan of moves only, in which the optimizer updates chunk 0.
TEST(Traffic, AnUpdatedChunkIsLoadedBecauseOfItsUpdate) {
  constexpr ChunkId kWeights{Space::Weights, 0}, kSums{Space::GradientSums, 0};
  const Op load = make_move(kWeights, Tier::Host, Tier::Device);
  const Op drop{.kind = OpKind::Drop, .stream = StreamKind::Load, .chunk = kWeights};
  const Op update{.kind = OpKind::Update, .stream = StreamKind::Update, .chunk = kWeights};
  Plan plan;
  plan.chunks.resize(1);
  // An update before the first use belongs to the step before.
  plan.ops = {update, load, drop, load, update, drop, load};
  EXPECT_EQ(moves_of(plan),
            "load weights 0 first use; load weights 0 evicted; load weights 0 update");
  Op speculate = update;
  speculate.kind = OpKind::Speculate;
  plan.ops = {load, speculate, drop, load};
  EXPECT_EQ(moves_of(plan), "load weights 0 first use; load weights 0 update");
  // The chunk of another rank: its owner says that it has updated it.
  const Op received{.kind = OpKind::Receive,
                    .stream = StreamKind::Receive,
                    .chunk = kWeights,
                    .message = Message::Weights};
  plan.ops = {received, load, drop, load, received, drop, load};
  EXPECT_EQ(moves_of(plan),
            "load weights 0 first use; load weights 0 evicted; load weights 0 update");
  plan.chunks[0].first_block = BlockIndex(0);  // the chunk is on the device when the step begins
  plan.ops = {drop, load, update, drop, load};
  EXPECT_EQ(moves_of(plan), "load weights 0 evicted; load weights 0 update");
  // Gradient sums are allocated, not loaded, when they are used first.
  plan.ops = {make_move(kSums, Tier::None, Tier::Device),
              make_move(kSums, Tier::Device, Tier::Host),
              make_move(kSums, Tier::Host, Tier::Device)};
  EXPECT_EQ(moves_of(plan), "store gradient sums 0 evicted; load gradient sums 0 evicted");
}

TEST(Traffic, OtherPlanesThanTheWeightsAreState) {
  Op load = make_move({Space::Weights, 0}, Tier::Host, Tier::Device);
  EXPECT_EQ(class_of(load), TrafficClass::Weights);
  load.plane = kWeightPlane + 1;
  EXPECT_EQ(class_of(load), TrafficClass::State);
}

TEST(Traffic, ResidentWeightsAreLoadedAgainAfterTheirUpdate) {
  const Case c = test::make_case_from_text("r0 r1 r2 w2 w1 w0", 3, 65536, 3);
  const Plan plan = test::plan_case(c, 8, false, false, 1).plan;
  ASSERT_EQ(plan.count(&ChunkRecord::begins_on_device), 1u);
  const Traffic traffic = traffic_of(plan, c.layout);
  EXPECT_EQ(traffic.of(TrafficClass::Weights, MoveReason::FirstUse).loads, 2u);
  EXPECT_EQ(traffic.of(TrafficClass::Weights, MoveReason::Update).loads, 1u);
  EXPECT_EQ(traffic.of(TrafficClass::Weights, MoveReason::Evicted).loads, 0u);
}

TEST(Traffic, TheSumsAreThoseOfThePlan) {
  uint64_t num_evicted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = test::make_any_case(seed);
    const Plan plan =
        test::plan_case(c, test::smallest_blocks(c) + seed % 4, seed % 2, seed % 3 == 0, seed % 5)
            .plan;
    const Traffic traffic = traffic_of(plan, c.layout);
    EXPECT_EQ(traffic.total().loaded_bytes, plan.loaded_bytes) << seed;
    EXPECT_EQ(traffic.total().stored_bytes, plan.stored_bytes) << seed;
    EXPECT_TRUE(traffic.of(MoveReason::None).is_empty()) << seed;
    MovedBytes by_reason;
    for (int r = 0; r < kNumMoveReasons; ++r) by_reason += traffic.of(static_cast<MoveReason>(r));
    EXPECT_EQ(by_reason.bytes(), traffic.total().bytes()) << seed;
    // A chunk is used first at most once.
    EXPECT_LE(traffic.of(MoveReason::FirstUse).loads, c.layout.num_chunks()) << seed;
    num_evicted += traffic.of(MoveReason::Evicted).loads;
  }
  EXPECT_GT(num_evicted, 0u);
}

}  // namespace
}  // namespace ebb::tests_of_traffic
