// The whole matrix. Each test runs one class, so that the shards of GoogleTest can divide the work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

/// The parameters are dtype, clip and accumulation.
using Class = std::tuple<int, int, int>;

class IdentitySlow : public testing::TestWithParam<Class> {};
INSTANTIATE_TEST_SUITE_P(WholeMatrix, IdentitySlow,
                         testing::Combine(testing::Range(0, kNumValues[0]),
                                          testing::Range(0, kNumValues[1]),
                                          testing::Range(0, kNumValues[2])),
                         [](const auto& info) {
                           Choice choice{};
                           std::tie(choice[0], choice[1], choice[2]) = info.param;
                           const TrainingCase run = case_of(choice);
                           return fmt::format("{}_{}_{}", name_of(run.dtype),
                                              run.clip ? "clipped" : "unclipped", run.accumulation);
                         });

TEST_P(IdentitySlow, EverySchedule) {
  IdentityCheck check;
  size_t num_choices = 0;
  for (const Choice& choice : whole_matrix()) {
    if (Class(choice[0], choice[1], choice[2]) != GetParam()) continue;
    check.run(case_of(choice));
    ++num_choices;
  }
  EXPECT_EQ(num_choices, whole_matrix().size() / (kNumValues[0] * kNumValues[1] * kNumValues[2]));
  EXPECT_EQ(check.num_runs(), num_choices + 1);
}

}  // namespace
}  // namespace ebb::test
