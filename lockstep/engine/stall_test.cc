#include "lockstep/engine/stall.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Event = StallWatch::Event;
using std::chrono::milliseconds;
using std::chrono::seconds;

const auto kStart = StallWatch::Clock::now();

TEST(StallWatch, SpeaksOncePerStallAndOnceWhenItEnds) {
  StallWatch watch(seconds(10));
  EXPECT_EQ(watch.look(12, 3, kStart), Event::none);
  EXPECT_EQ(watch.look(12, 3, kStart + milliseconds(9'999)), Event::none);
  EXPECT_EQ(watch.look(12, 3, kStart + seconds(10)), Event::stalled);
  EXPECT_DOUBLE_EQ(watch.stalled_s(), 10);
  EXPECT_EQ(watch.look(12, 3, kStart + seconds(1000)), Event::none);
  EXPECT_EQ(watch.look(12, 4, kStart + seconds(1001)), Event::goes_on);
  EXPECT_DOUBLE_EQ(watch.stalled_s(), 1001);
  EXPECT_EQ(watch.look(12, 4, kStart + seconds(1010)), Event::none);
  EXPECT_EQ(watch.look(12, 4, kStart + seconds(1011)), Event::stalled);
}

TEST(StallWatch, MovesAreNoStallHoweverLongTheOperationTakes) {
  StallWatch watch(seconds(10));
  for (int second = 0; second < 100; second += 9) {
    EXPECT_EQ(watch.look(0, static_cast<std::uint64_t>(second), kStart + seconds(second)),
              Event::none);
  }
}

TEST(StallWatch, AnotherOperationStartsAnew) {
  StallWatch watch(seconds(10));
  watch.look(0, 5, kStart);
  EXPECT_FALSE(watch.complete());
  // Idle time between operations is nobody's stall.
  EXPECT_EQ(watch.look(1, 5, kStart + seconds(60)), Event::none);
  EXPECT_EQ(watch.look(1, 5, kStart + seconds(70)), Event::stalled);
  EXPECT_TRUE(watch.complete());
  EXPECT_FALSE(watch.complete());
}

TEST(StallWatch, SaysHowLongAWaitMayLast) {
  StallWatch watch(seconds(10));
  EXPECT_GT(watch.remaining_ms(), 1'000'000);
  const auto now = StallWatch::Clock::now();
  watch.look(0, 0, now);
  EXPECT_LE(watch.remaining_ms(), 10'000);
  EXPECT_GT(watch.remaining_ms(), 0);
  watch.look(0, 0, now + seconds(10));
  EXPECT_GT(watch.remaining_ms(), 1'000'000);
}

}  // namespace
}  // namespace lockstep
