#include <gtest/gtest.h>

#include <future>

#include "device/device.h"
#include "scheduler/run/last_gradient.h"

namespace ebb::test {
namespace {

/// Two stores, and a norm that waits for the second.
Plan plan_with_norm() {
  Plan plan;
  plan.waits = {OpIndex(1)};
  plan.ops = {
      {.kind = OpKind::Move, .stream = StreamKind::Store},
      {.kind = OpKind::Move, .stream = StreamKind::Store},
      {.kind = OpKind::Norm, .stream = StreamKind::Update, .first_wait = 0, .num_waits = 1}};
  return plan;
}

TEST(LastGradient, IsStoredWhenTheEventOfTheNormIsDone) {
  const auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 1 << 20});
  const auto first = device->create_event(), second = device->create_event();
  const auto stream = device->create_stream(StreamKind::Store);
  first->signal();
  LastGradient last;
  last.begin(plan_with_norm());
  EXPECT_FALSE(last.has_all_norms());
  last.submitted(OpIndex(0), *first);
  EXPECT_FALSE(last.has_all_norms()) << "only another gradient is in host memory";
  std::promise<void> gate;
  stream->submit({}, [&] { gate.get_future().wait(); });
  stream->record(*second);
  last.submitted(OpIndex(1), *second);
  EXPECT_FALSE(last.has_all_norms()) << "its store has not ended";
  gate.set_value();
  second->synchronize();
  EXPECT_TRUE(last.has_all_norms());
}

TEST(LastGradient, IsResetWhenAStepBegins) {
  const auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = 1 << 20});
  const auto event = device->create_event();
  event->signal();
  LastGradient last;
  last.begin(plan_with_norm());
  last.submitted(OpIndex(1), *event);
  EXPECT_TRUE(last.has_all_norms());
  last.begin(plan_with_norm());
  EXPECT_FALSE(last.has_all_norms()) << "the finished event belongs to the previous step";
  last.begin({});
  last.submitted(OpIndex(1), *event);
  EXPECT_FALSE(last.has_all_norms()) << "the plan has no norm";
}

}  // namespace
}  // namespace ebb::test
