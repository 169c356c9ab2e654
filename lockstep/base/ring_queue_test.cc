#include "lockstep/base/ring_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace lockstep {
namespace {

TEST(RingQueue, GivesBackInOrderHoweverItFills) {
  RingQueue<int> queue;
  std::deque<int> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    if (random() % 5 < 3 - static_cast<unsigned>(i / 5000)) {
      queue.push_back(i);
      expected.push_back(i);
    } else if (!expected.empty()) {
      ASSERT_EQ(queue.front(), expected.front());
      queue.pop_front();
      expected.pop_front();
    }
    ASSERT_EQ(queue.count(), expected.size());
  }
  EXPECT_GT(queue.count(), 0u);
}

TEST(RingQueue, KeepsItsPlaces) {
  RingQueue<int> queue;
  queue.push_back(0);
  const int* first = &queue.front();
  for (int i = 1; i <= 80; ++i) {
    queue.push_back(i);
    queue.pop_front();
    EXPECT_EQ(queue.front(), i);
  }
  EXPECT_EQ(&queue.front(), first);  // 8 places, ten times around
}

TEST(RingQueue, LetsGoOfWhatIsTakenOut) {
  RingQueue<std::shared_ptr<int>> queue;
  const auto held = std::make_shared<int>(1);
  queue.push_back(held);
  queue.pop_front();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace lockstep
