#include "lockstep/torch/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(LearningRate, ConstantIsConstant) {
  const LearningRate constant({.rate = 0.1});
  EXPECT_DOUBLE_EQ(constant.at(0), 0.1);
  EXPECT_DOUBLE_EQ(constant.at(99), 0.1);
}

TEST(LearningRate, ScalesWithTheBatchAndWarmsUpFromTheUnscaledRate) {
  LearningRateOptions options{.rate = 0.1,
                              .scaling = RateScaling::linear,
                              .base_batch = 64,
                              .batch = 256,
                              .warmup_steps = 3};
  const LearningRate linear(options);
  EXPECT_DOUBLE_EQ(linear.peak(), 0.4);
  EXPECT_DOUBLE_EQ(linear.at(0), 0.2);
  EXPECT_DOUBLE_EQ(linear.at(1), 0.3);
  EXPECT_DOUBLE_EQ(linear.at(2), 0.4);
  EXPECT_DOUBLE_EQ(linear.at(3), 0.4);
  options.scaling = RateScaling::square_root;
  EXPECT_DOUBLE_EQ(LearningRate(options).peak(), 0.2);
  options.batch = 16;
  EXPECT_DOUBLE_EQ(LearningRate(options).peak(), 0.05);
}

TEST(LearningRate, WithoutScalingWarmsUpFromZero) {
  const LearningRate rate({.rate = 0.1, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(rate.at(0), 0.025);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.1);
}

TEST(LearningRate, CosineFallsToZeroAfterTheLastStep) {
  const LearningRate rate({.rate = 0.1, .warmup_steps = 10, .decay_until = 110});
  EXPECT_DOUBLE_EQ(rate.at(10), 0.1);
  EXPECT_NEAR(rate.at(60), 0.05, 1e-12);
  EXPECT_GT(rate.at(109), 0);
  EXPECT_LT(rate.at(109), 1e-4);
  EXPECT_NEAR(rate.at(110), 0, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate({.rate = 0.1, .warmup_steps = 200, .decay_until = 110}).at(109),
                   0.055);
}

TEST(LearningRate, WhatCannotBeIsRefused) {
  EXPECT_THROW(LearningRate({.rate = -1}), Error);
  EXPECT_THROW(LearningRate({.rate = 1, .scaling = RateScaling::linear, .batch = 8}), Error);
}

}  // namespace
}  // namespace lockstep
