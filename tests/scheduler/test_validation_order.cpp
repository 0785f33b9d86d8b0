// Which operations of a plan are surely done before which others start.
#include <gtest/gtest.h>

#include "scheduler/validation_order.h"

namespace ebb {
namespace {

/// Two updates of the same chunk would need more between them than their lane.
TEST(ValidationOrder, UpdatesOverlapAndTheNormDoesNot) {
  const Op update{.kind = OpKind::Update, .lane = Lane::Update};
  const Op norm{.kind = OpKind::Norm, .lane = Lane::Update};
  Plan plan;
  plan.ops = {update, update, norm, update, update};
  plan.ops.push_back({.kind = OpKind::Partials, .lane = Lane::Store, .num_waits = 1});
  plan.waits = {1};
  const validation::Order order(plan);
  EXPECT_FALSE(order.before(0, 1));
  EXPECT_TRUE(order.before(0, 2) && order.before(1, 2));
  for (const uint32_t earlier : {0, 1, 2}) EXPECT_TRUE(order.before(earlier, 4)) << earlier;
  EXPECT_FALSE(order.before(3, 4));
  EXPECT_TRUE(order.before(0, 5)) << "events fire in order";
}

}  // namespace
}  // namespace ebb
