#include <gtest/gtest.h>

#include "scheduler/run/learning_rate.h"

namespace ebb {
namespace {

constexpr LearningRate kBase{.peak = 1, .minimum = 0.2, .warmup_steps = 4, .num_steps = 12};

LearningRate with(ScheduleShape shape) {
  LearningRate rate = kBase;
  rate.shape = shape;
  return rate;
}

TEST(LearningRate, WarmsUpToThePeak) {
  for (const auto shape : {ScheduleShape::Constant, ScheduleShape::Linear, ScheduleShape::Cosine}) {
    EXPECT_DOUBLE_EQ(with(shape).at(0), 0.25);
    EXPECT_DOUBLE_EQ(with(shape).at(3), 1);
    EXPECT_DOUBLE_EQ(with(shape).at(4), 1);
  }
}

TEST(LearningRate, DecaysByItsShape) {
  EXPECT_DOUBLE_EQ(with(ScheduleShape::Constant).at(11), 1);
  EXPECT_DOUBLE_EQ(with(ScheduleShape::Linear).at(6), 0.8);  // a quarter of the decay
  EXPECT_DOUBLE_EQ(with(ScheduleShape::Linear).at(8), 0.6);
  EXPECT_DOUBLE_EQ(with(ScheduleShape::Cosine).at(6), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(with(ScheduleShape::Cosine).at(8), 0.6);
  EXPECT_GT(with(ScheduleShape::Cosine).at(11),
            0.2);  // the minimum is reached one step after the last
}

TEST(LearningRate, WorksWithoutWarmUpAndWithOnlyWarmUp) {
  LearningRate rate = kBase;
  rate.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(rate.at(0), 1);
  rate.warmup_steps = 100;
  EXPECT_DOUBLE_EQ(rate.at(11), 0.12);
}

}  // namespace
}  // namespace ebb
