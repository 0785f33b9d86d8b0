#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/error_of.h"
#include "tools/progress.h"

namespace ebb {
namespace {

StepRecord step(uint64_t number) {
  return {.step = number,
          .loss = 5.54321,
          .grad_norm = 1.25,
          .learning_rate = 3e-4,
          .step_seconds = 2,
          .tokens_per_second = 1024.4};
}

/// Returns the text that a RunProgress writes.
template <class Body>
std::string output_of(bool live, double interval_s, const Body& body) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = ::open_memstream(&text, &size);
  {
    RunProgress progress(file, live, 10, RunProgress::Seconds(interval_s));
    body(progress);
  }
  std::fclose(file);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Progress, AStepIsOneLine) {
  EXPECT_EQ(format_step(step(3), 10, 14),
            "step 3/10  loss 5.5432  norm 1.250  lr 3.00e-04  1024 tok/s  14s left");
  StepRecord last = step(10);
  last.eval_loss = 4.5;
  last.bound_share = 0.934;
  EXPECT_EQ(
      format_step(last, 10, 0),
      "step 10/10  loss 5.5432  eval loss 4.5000  norm 1.250  lr 3.00e-04  1024 tok/s  93 % of "
      "bound");
}

TEST(Progress, StallsAreAShareOfTheStep) {
  StepRecord record = step(3);
  record.stall_seconds = 0.25;  // of 2 s
  EXPECT_EQ(format_step(record, 10, 14),
            "step 3/10  loss 5.5432  norm 1.250  lr 3.00e-04  1024 tok/s  stall 12 %  14s left");
}

TEST(Progress, ANarrowLineOmitsTheLeastImportantPartsFirst) {
  StepRecord record = step(3);
  record.bound_share = 0.93;
  record.stall_seconds = 0.5;
  const std::string all = format_step(record, 10, 14);
  EXPECT_EQ(format_step(record, 10, 14, all.size()), all);
  EXPECT_EQ(format_step(record, 10, 14, all.size() - 1),
            "step 3/10  loss 5.5432  norm 1.250  1024 tok/s  93 % of bound  stall 25 %  14s left");
  EXPECT_EQ(format_step(record, 10, 14, 60),
            "step 3/10  loss 5.5432  1024 tok/s  93 % of bound  14s left");
  EXPECT_EQ(format_step(record, 10, 14, 40), "step 3/10  loss 5.5432  14s left");
  EXPECT_EQ(format_step(record, 10, 14, 1), "step 3/10");
}

TEST(Progress, AStepInFp16ShowsItsScale) {
  StepRecord record = step(3);
  record.loss_scale = 32768;
  record.skipped_steps = 0;
  EXPECT_EQ(format_step(record, 10, 14),
            "step 3/10  loss 5.5432  norm 1.250  scale 32768  lr 3.00e-04  1024 tok/s  14s left");
  record.skipped_steps = 2;
  EXPECT_SAYS(format_step(record, 10, 14), "  scale 32768  2 skipped  lr");
}

TEST(Progress, AnEmulatedStepHasNoLosses) {
  StepRecord record = step(3);
  record.emulates_compute = true;
  record.eval_loss = 4.5;
  EXPECT_EQ(format_step(record, 10, 14), "step 3/10  lr 3.00e-04  1024 tok/s  14s left");
}

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(130), "2m10s");
  EXPECT_EQ(format_duration(3 * 3600 + 5 * 60), "3h05m");
}

TEST(Progress, PlainLinesAreLimitedExceptFirstLastAndEvaluations) {
  const std::string text = output_of(false, 1e6, [](RunProgress& progress) {
    for (uint64_t i = 1; i <= 10; ++i) {
      StepRecord record = step(i);
      if (i == 5) record.eval_loss = 1;
      progress.step(record);
    }
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  for (const char* line : {"step 1/10 ", "step 5/10 ", "step 10/10 "}) {
    EXPECT_SAYS(text, line);
  }
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, WithoutALimitEveryStepHasAPlainLine) {
  const std::string text = output_of(false, 0, [](RunProgress& progress) {
    for (uint64_t i = 1; i <= 10; ++i) progress.step(step(i));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(Progress, TheLiveLineContinuesAfterANotice) {
  const std::string text = output_of(true, 1, [](RunProgress& progress) {
    progress.step(step(1));
    progress.notice("hello");
    progress.step(step(2));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);  // after the notice and at the end
  EXPECT_SAYS(text, "\r\x1b[Khello\nstep 1/10");
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(Progress, TextAfterTheEndBeginsANewLine) {
  const std::string text = output_of(true, 1, [](RunProgress& progress) {
    progress.step(step(1));
    progress.finish();
    progress.notice("done");
  });
  EXPECT_TRUE(text.ends_with("left\n\r\x1b[Kdone\n")) << text;
}

}  // namespace
}  // namespace ebb
