// Notices about rates that may be wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "system/other_load.h"
#include "tests/tools/run_ebb.h"
#include "tools/outdated_rates.h"

namespace ebb {
namespace {

TrainOptions options() {
  TrainOptions options;
  options.preset = "gpt2";
  return options;
}

/// The number of the step after which a check says something; 0: it says nothing in 20 steps.
template <class StepSeconds>
int notices_after(double predicted_s, const StepSeconds& step_s) {
  StepCheck check(predicted_s, options());
  int said = 0;
  for (int step = 1; step <= 20; ++step) {
    if (!check.add(step_s(step))) continue;
    EXPECT_EQ(said, 0) << "said twice, after step " << said << " and " << step;
    said = step;
  }
  return said;
}

TEST(StepCheck, SaysOnceThatStepsTakeMuchLongerThanPredicted) {
  EXPECT_EQ(notices_after(1, [](int) { return 1.31; }), 10);
  EXPECT_EQ(notices_after(1, [](int) { return 1.29; }), 0);
  EXPECT_EQ(notices_after(0, [](int) { return 1.31; }), 0);  // nothing is predicted
}

TEST(StepCheck, TakesTheMedianOfSteps3To10) {
  EXPECT_EQ(notices_after(1, [](int step) { return step < 3 ? 9 : 1; }), 0);
  EXPECT_EQ(notices_after(1, [](int step) { return step > 10 ? 9 : 1; }), 0);
  // Three slow steps of eight are not the median, five are.
  EXPECT_EQ(notices_after(1, [](int step) { return step >= 3 && step <= 5 ? 9 : 1; }), 0);
  EXPECT_EQ(notices_after(1, [](int step) { return step >= 3 && step <= 7 ? 9 : 1; }), 10);
}

TEST(StepCheck, NamesTheNumbersAndTheCommand) {
  StepCheck check(0.5, options());
  std::optional<std::string> notice;
  for (int step = 1; step <= 10; ++step) notice = check.add(1);
  ASSERT_TRUE(notice);
  EXPECT_SAYS(*notice,
              "steps 3 to 10 took 2.00 x the predicted time (median 1 s, predicted 0.5 s)");
  EXPECT_SAYS(*notice, "which changes no result");
  EXPECT_SAYS(*notice, "`ebb plan --measure --preset gpt2`");
}

/// Rates are kept for each type, device and number of threads.
TEST(MeasureCommand, HasTheFlagsThatSelectTheRates) {
  TrainOptions other = options();
  other.preset.clear();
  other.model = "my models/one";
  other.dtype = DType::F32;
  other.gradient_dtype = DType::F32;
  other.device = DeviceChoice::Host;
  other.threads = 3;
  EXPECT_EQ(measure_command(other),
            "ebb plan --measure --model 'my models/one' --dtype fp32 --gradient-dtype fp32 "
            "--device host --threads 3");
}

TEST(BusyNotice, IsGivenFromAQuarterOfTheCoresOn) {
  EXPECT_FALSE(busy_notice(0.24, options()));
  EXPECT_TRUE(busy_notice(0.25, options()));
  const auto notice = busy_notice(0.5, options());
  ASSERT_TRUE(notice);
  EXPECT_SAYS(*notice, "other processes used 50 % of the cores");
  EXPECT_SAYS(*notice, "`ebb plan --measure --preset gpt2`");
}

TEST(OtherLoad, IsAShareAndLeavesOutThisProcess) {
  const OtherLoad others;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
  }
  EXPECT_GE(others.share(), 0);
  EXPECT_LE(others.share(), 1);
}

}  // namespace
}  // namespace ebb
