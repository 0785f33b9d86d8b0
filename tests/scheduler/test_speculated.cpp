// Which chunks a plan speculates on.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/plan/validate.h"
#include "tests/scheduler/plan_cases.h"

namespace ebb::test {
namespace {

PlanOptions options_with(uint32_t num_blocks, uint32_t speculated_chunks) {
  PlanOptions options{.num_blocks = num_blocks};
  options.schedule.update = UpdateOrder::Speculate;
  options.schedule.speculated_chunks = speculated_chunks;
  return options;
}

/// The chunks with a speculative update, in the order of the backward.
std::vector<uint32_t> speculated(const Plan& plan) {
  std::vector<uint32_t> chunks;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::Speculate) chunks.push_back(op.chunk.index);
  }
  return chunks;
}

/// If they were not spread, the end of the backward or the beginning of the next forward would wait
/// for a series of updates.
TEST(Speculated, AreSpreadOverTheBackward) {
  int num_cases = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Case c = make_case({.num_layers = 12}, seed);
    const uint32_t blocks = smallest_blocks(c) + 2;
    const std::vector<uint32_t> all =
        speculated(make_plan(c.trace, c.layout, options_with(blocks, UINT32_MAX)));
    const auto n = static_cast<uint32_t>(all.size());
    for (uint32_t num = 1; num < n; num += 2, ++num_cases) {
      const PlanOptions options = options_with(blocks, num);
      const Plan plan = make_plan(c.trace, c.layout, options);
      EXPECT_TRUE(validate(plan, c.trace, c.layout, options).empty());
      const std::vector<uint32_t> some = speculated(plan);
      ASSERT_EQ(some.size(), num);
      EXPECT_EQ(some.front(), all.front());
      EXPECT_NE(some.back(), all.back()) << "the next forward needs this chunk first";
      for (size_t i = 1; i < some.size(); ++i) {
        const auto gap = std::ranges::find(all, some[i]) - std::ranges::find(all, some[i - 1]);
        EXPECT_GE(gap, n / num);
        EXPECT_LE(gap, (n + num - 1) / num);
      }
    }
  }
  EXPECT_GT(num_cases, 100);
}

}  // namespace
}  // namespace ebb::test
