#include "lockstep/train/schedule.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(Schedule, ConstantIsConstant) {
  TrainSettings settings;
  settings.lr = 0.1;
  const Schedule schedule(settings, 100);
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.rate(99), 0.1);
}

TEST(Schedule, ScalesWithTheBatchAndWarmsUpFromTheUnscaledRate) {
  TrainSettings settings;
  settings.lr = 0.1;
  settings.batch = 256;
  settings.base_batch = 64;
  settings.warmup_steps = 3;
  settings.lr_scaling = "linear";
  const Schedule linear(settings, 100);
  EXPECT_DOUBLE_EQ(linear.peak(), 0.4);
  EXPECT_DOUBLE_EQ(linear.rate(0), 0.2);
  EXPECT_DOUBLE_EQ(linear.rate(1), 0.3);
  EXPECT_DOUBLE_EQ(linear.rate(2), 0.4);
  EXPECT_DOUBLE_EQ(linear.rate(3), 0.4);
  settings.lr_scaling = "sqrt";
  EXPECT_DOUBLE_EQ(Schedule(settings, 100).peak(), 0.2);
  settings.batch = 16;
  EXPECT_DOUBLE_EQ(Schedule(settings, 100).peak(), 0.05);
}

TEST(Schedule, WithoutScalingWarmsUpFromZero) {
  TrainSettings settings;
  settings.lr = 0.1;
  settings.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(Schedule(settings, 100).rate(0), 0.025);
  EXPECT_DOUBLE_EQ(Schedule(settings, 100).rate(3), 0.1);
}

TEST(Schedule, CosineFallsToZeroAfterTheLastStep) {
  TrainSettings settings;
  settings.lr = 0.1;
  settings.warmup_steps = 10;
  settings.lr_schedule = "cosine";
  const Schedule schedule(settings, 110);
  EXPECT_DOUBLE_EQ(schedule.rate(10), 0.1);
  EXPECT_NEAR(schedule.rate(60), 0.05, 1e-12);
  EXPECT_GT(schedule.rate(109), 0);
  EXPECT_LT(schedule.rate(109), 1e-4);
  EXPECT_NEAR(schedule.rate(110), 0, 1e-12);
  settings.warmup_steps = 200;
  EXPECT_DOUBLE_EQ(Schedule(settings, 110).rate(109), 0.055);
}

}  // namespace
}  // namespace lockstep::train
