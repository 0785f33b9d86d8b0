// A GPU profiler gets the name of every operation of the plan. Without a profiler, nothing is
// recorded.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/cases.h"

namespace ebb::test {
namespace {

class ProfilerRangesTest : public testing::Test {
 protected:
  ~ProfilerRangesTest() override {
    emulation::take_profile();
    emulation::settings() = {};
  }
};

using Counts = std::map<std::string, size_t>;

Counts counted(const std::vector<std::string>& names) {
  Counts counts;
  for (const std::string& name : names) ++counts[name];
  return counts;
}

std::string name_of_range(const Op& op, const Trace& trace) {
  const std::string chunk =
      std::string(name_of(op.chunk.space)) + " " + std::to_string(op.chunk.index);
  switch (op.kind) {
    case OpKind::Call: {
      const Call& call = trace.calls[op.call];
      return (call.phase == Phase::Forward ? "forward " : "backward ") + std::string(call.name);
    }
    case OpKind::Round:
      return "round " + chunk;
    case OpKind::Update:
      return "update " + chunk;
    case OpKind::Speculate:
      return "speculate " + chunk;
    case OpKind::StorePartialNorms:
      return "store partial norms " + chunk;
    case OpKind::Norm:
      return "norm of all gradients";
    case OpKind::Move:
      return (op.from == Tier::None   ? "allocate "
              : op.to == Tier::Device ? "load "
                                      : "store ") +
             chunk;
    case OpKind::Drop:
    case OpKind::AddGroups:
    case OpKind::FetchSum:
    case OpKind::RoundTotal:
    case OpKind::Send:
    case OpKind::Receive:
      return "";  // one rank has none of the last five
  }
  return "";
}

/// A case whose steps keep nothing on the device from one step to the next.
TrainingCase tight_case() {
  return {.memory = Memory::Smallest,
          .update = UpdateOrder::Wait,
          .device = DeviceKind::Cuda,
          .num_steps = 2,
          .model = {.vocabulary = 97,
                    .max_positions = 8,
                    .channels = 64,
                    .num_layers = 2,
                    .num_heads = 2},
          .length = 8};
}

TEST_F(ProfilerRangesTest, AreTheOperationsOfThePlan) {
  emulation::settings().granularity = size_t{64} << 10;
  emulation::settings().is_profiled = true;
  const TrainingCase run = tight_case();
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  const Preparation prepared = prepare_case(model, run);
  train(model, prepared, run);
  Counts expected;
  for (const Op& op : prepared.plan.ops) {
    const std::string name = name_of_range(op, prepared.trace);
    if (!name.empty()) expected[name] += run.num_steps;
  }
  EXPECT_TRUE(expected.contains("norm of all gradients"));
  EXPECT_TRUE(expected.contains("load weights 0"));
  EXPECT_TRUE(expected.contains("update weights 0"));
  EXPECT_TRUE(expected.contains("forward classifier") || expected.contains("forward linear"));
  EXPECT_EQ(counted(emulation::take_profile()), expected);
  EXPECT_EQ(emulation::num_open_ranges(), 0);
}

TEST_F(ProfilerRangesTest, AreNoneWhereNoProfilerWatches) {
  emulation::settings().granularity = size_t{64} << 10;
  train(tight_case());
  EXPECT_TRUE(emulation::take_profile().empty());
}

TEST_F(ProfilerRangesTest, ALongNameIsCut) {
  emulation::settings().is_profiled = true;
  const auto device = create_device({.profile = {.kind = DeviceKind::Cuda, .num_threads = 1}});
  const std::string what = "what", longest(200, 'x');
  {
    const ProfiledRange outer(*device, {what, longest});
    const ProfiledRange inner(*device, {std::string_view(what).substr(0, 2), "name", 7});
    EXPECT_EQ(emulation::num_open_ranges(), 2);
  }
  EXPECT_EQ(emulation::num_open_ranges(), 0);
  const std::vector<std::string> requested = emulation::take_profile();
  ASSERT_EQ(requested.size(), 2u);
  EXPECT_EQ(requested[0], "what " + std::string(90, 'x'));
  EXPECT_EQ(requested[1], "wh name 7");
}

}  // namespace
}  // namespace ebb::test
