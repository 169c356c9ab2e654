#include "lockstep/engine/stall.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Event = StallWatch::Event;
using std::chrono::milliseconds;
using std::chrono::seconds;

StallWatch::Clock::time_point g_now;

void at(milliseconds time) {
  g_now = StallWatch::Clock::time_point() + std::chrono::hours(1) + time;
}

StallWatch ten_seconds() {
  at(seconds(0));
  return StallWatch(seconds(10), [] { return g_now; });
}

TEST(StallWatch, SpeaksOncePerStallAndOnceWhenItEnds) {
  StallWatch watch = ten_seconds();
  EXPECT_EQ(watch.look(12, 3), Event::none);
  EXPECT_EQ(watch.look(12, 3), Event::none);
  at(milliseconds(9'999));
  EXPECT_EQ(watch.look(12, 3), Event::none);
  at(seconds(10));
  EXPECT_EQ(watch.look(12, 3), Event::stalled);
  EXPECT_DOUBLE_EQ(watch.stalled_s(), 10);
  at(seconds(1000));
  EXPECT_EQ(watch.look(12, 3), Event::none);
  EXPECT_EQ(watch.look(12, 4), Event::goes_on);
  EXPECT_DOUBLE_EQ(watch.stalled_s(), 1000);
  EXPECT_EQ(watch.look(12, 4), Event::none);
  at(seconds(1010));
  EXPECT_EQ(watch.look(12, 4), Event::stalled);
}

TEST(StallWatch, MovesAreNoStallHoweverLongTheOperationTakes) {
  StallWatch watch = ten_seconds();
  for (std::uint64_t mark = 0; mark < 100; ++mark) {
    at(seconds(9 * mark));
    EXPECT_EQ(watch.look(0, mark), Event::none);
    EXPECT_EQ(watch.look(0, mark), Event::none);
  }
}

TEST(StallWatch, AnotherOperationStartsAnew) {
  StallWatch watch = ten_seconds();
  watch.look(0, 5);
  watch.look(0, 5);
  EXPECT_FALSE(watch.complete());
  at(seconds(60));  // idle time between operations is nobody's stall
  EXPECT_EQ(watch.look(1, 5), Event::none);
  EXPECT_EQ(watch.look(1, 5), Event::none);
  at(seconds(70));
  EXPECT_EQ(watch.look(1, 5), Event::stalled);
  EXPECT_TRUE(watch.complete());
  EXPECT_FALSE(watch.complete());
}

TEST(StallWatch, SaysHowLongAWaitMayLast) {
  StallWatch watch = ten_seconds();
  EXPECT_GT(watch.remaining_ms(), 1'000'000);
  watch.look(0, 0);
  EXPECT_LE(watch.remaining_ms(), 100);  // the count has not begun
  watch.look(0, 0);
  at(seconds(4));
  EXPECT_EQ(watch.remaining_ms(), 6'000);
  at(seconds(11));
  EXPECT_EQ(watch.remaining_ms(), 0);
  watch.look(0, 0);
  EXPECT_GT(watch.remaining_ms(), 1'000'000);
}

}  // namespace
}  // namespace lockstep
