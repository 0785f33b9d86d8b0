// Which operations of a plan are certainly done before which others start.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/validation_order.h"

namespace ebb {
namespace {

bool before(const Plan& plan, int a, int b) {
  return validation::Order(plan).before(OpIndex(a), OpIndex(b));
}

TEST(ValidationOrder, UpdatesRunInStreamOrder) {
  const Op update{.kind = OpKind::Update, .stream = StreamKind::Update};
  const Op norm{.kind = OpKind::Norm, .stream = StreamKind::Update};
  Plan plan;
  plan.ops = {update, update, norm, update};
  plan.ops.push_back(
      {.kind = OpKind::StorePartialNorms, .stream = StreamKind::Store, .num_waits = 1});
  plan.waits = {OpIndex(1)};
  for (const int earlier : {0, 1, 2}) EXPECT_TRUE(before(plan, earlier, 3)) << earlier;
  EXPECT_TRUE(before(plan, 0, 1));
  EXPECT_FALSE(before(plan, 1, 0));
  EXPECT_TRUE(before(plan, 0, 4)) << "the store waits for update 1, which comes after update 0";
  EXPECT_FALSE(before(plan, 2, 4)) << "the store does not wait for the norm";
}

Op drop(StreamKind stream) { return {.kind = OpKind::Drop, .stream = stream}; }
Op load() {
  return {.kind = OpKind::Move, .stream = StreamKind::Load, .from = Tier::Host, .to = Tier::Device};
}
Op allocate() { return {.kind = OpKind::Move, .stream = StreamKind::Compute, .to = Tier::Device}; }
Op run() { return {.kind = OpKind::Call, .stream = StreamKind::Compute}; }
Op store() {
  return {
      .kind = OpKind::Move, .stream = StreamKind::Store, .from = Tier::Device, .to = Tier::Host};
}

/// A plan from operations, each with the indices of those that it waits for.
Plan plan_of(const std::vector<std::pair<Op, std::vector<int>>>& ops) {
  Plan plan;
  for (auto [op, waits] : ops) {
    op.first_wait = static_cast<uint32_t>(plan.waits.size());
    op.num_waits = static_cast<uint32_t>(waits.size());
    for (const int w : waits) plan.waits.push_back(OpIndex(w));
    plan.ops.push_back(op);
  }
  return plan;
}

/// A drop with a wait makes its stream wait, not its thread. All later operations of the stream run
/// after the wait.
TEST(ValidationOrder, ADropWithAWaitMakesItsStreamWait) {
  const Plan plan = plan_of({{run(), {}},
                             {store(), {0}},
                             {drop(StreamKind::Compute), {1}},
                             {allocate(), {}},
                             {run(), {}},
                             {drop(StreamKind::Load), {1}},
                             {load(), {}},
                             {{.kind = OpKind::StorePartialNorms, .stream = StreamKind::Store}, {}},
                             {{.kind = OpKind::Norm, .stream = StreamKind::Update}, {}}});
  const validation::Order order(plan);
  EXPECT_TRUE(order.messages().empty());
  for (const int later : {2, 3, 4, 5, 6, 7}) EXPECT_TRUE(before(plan, 1, later)) << later;
  EXPECT_FALSE(before(plan, 1, 8)) << "the update stream has not waited";
  EXPECT_TRUE(before(plan, 2, 3) && before(plan, 3, 4) && before(plan, 5, 6));
}

/// A drop without waits does not wait for the operations of its own stream.
TEST(ValidationOrder, ADropWithoutWaitsDoesNotWaitForItsStream) {
  const Plan plan =
      plan_of({{run(), {}}, {drop(StreamKind::Compute), {}}, {allocate(), {}}, {run(), {}}});
  EXPECT_FALSE(before(plan, 0, 1) || before(plan, 0, 2));
  EXPECT_TRUE(before(plan, 0, 3));
}

/// An operation that waits for a drop of the other thread waits for the waits of this drop, and for
/// the other thread to have reached it.
TEST(ValidationOrder, AWaitForADropIncludesItsWaits) {
  const Plan plan = plan_of({{run(), {}},
                             {run(), {}},
                             {drop(StreamKind::Compute), {0}},
                             {drop(StreamKind::Compute), {1}},
                             {load(), {}},
                             {load(), {3}},
                             {load(), {}}});
  EXPECT_FALSE(before(plan, 2, 4) || before(plan, 3, 4));
  EXPECT_TRUE(before(plan, 3, 5) && before(plan, 1, 5));
  EXPECT_TRUE(before(plan, 2, 5)) << "the program thread has passed drop 2, and the wait of drop 2 "
                                     "is done before that of drop 3";
  EXPECT_TRUE(before(plan, 3, 6)) << "load 6 runs after load 5";
}

/// The drop does not count as done after earlier waits of its thread: operations that wait for the
/// drop do not wait for those.
TEST(ValidationOrder, AChunkIsDroppedAfterItsOwnWaits) {
  const Plan plan = plan_of({{store(), {}},
                             {drop(StreamKind::Load), {0}},
                             {drop(StreamKind::Load), {}},
                             {allocate(), {2}},
                             {allocate(), {1}}});
  EXPECT_TRUE(before(plan, 0, 1));
  EXPECT_FALSE(before(plan, 0, 2) || before(plan, 0, 3));
  EXPECT_TRUE(before(plan, 2, 3) && before(plan, 1, 4) && before(plan, 0, 4));
}

TEST(ValidationOrder, ReportsImpossibleWaits) {
  Plan plan = plan_of({{run(), {1}}, {run(), {}}});
  plan.ops[1].num_waits = 1;
  const validation::Order order(plan);
  ASSERT_EQ(order.messages().size(), 2u);
  EXPECT_NE(order.messages()[0].find("waits for op 1, which does not come before"),
            std::string::npos);
  EXPECT_NE(order.messages()[1].find("more waits than are there"), std::string::npos);
}

}  // namespace
}  // namespace ebb
