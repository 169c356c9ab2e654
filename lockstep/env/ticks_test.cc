#include "lockstep/env/ticks.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep {
namespace {

std::int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(Ticks, BecomeTheTimeAtWhichTheyWereTaken) {
  const TickScale scale;
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t before_us = unix_us();
  const std::int64_t early = ticks_now();
  const std::int64_t after_us = unix_us();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(50)) {
  }
  const std::int64_t late = ticks_now();
  const auto now = scale.now();
  constexpr std::int64_t kToleranceUs = 5'000;  // this thread may lose its core between two looks
  EXPECT_GE(now.unix_us(early), before_us - kToleranceUs);
  EXPECT_LE(now.unix_us(early), after_us + kToleranceUs);
  EXPECT_GE(now.unix_us(late) - now.unix_us(early), 50'000 - kToleranceUs);
  EXPECT_LE(now.unix_us(late), unix_us() + kToleranceUs);
}

TEST(Ticks, NeverRunBackwards) {
  std::int64_t last = ticks_now();
  for (int i = 0; i < 100'000; ++i) {
    const std::int64_t next = ticks_now();
    EXPECT_GE(next, last);
    last = next;
  }
}

}  // namespace
}  // namespace lockstep
