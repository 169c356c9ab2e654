#include "lockstep/base/fifo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace lockstep {
namespace {

TEST(Fifo, GivesBackInOrderWhatWentIn) {
  Fifo<int> fifo;
  std::deque<int> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    // Grows and shrinks by turns.
    const bool puts = random() % 1000 < (i / 1000 % 2 == 0 ? 600 : 400);
    if (puts) {
      fifo.push(i);
      expected.push_back(i);
    } else if (!expected.empty()) {
      ASSERT_EQ(fifo.front(), expected.front());
      fifo.pop();
      expected.pop_front();
    }
    ASSERT_EQ(fifo.count(), expected.size());
    ASSERT_EQ(fifo.empty(), expected.empty());
  }
}

TEST(Fifo, KeepsItsMemory) {
  Fifo<int> fifo;
  fifo.push(0);
  fifo.push(0);
  fifo.pop();
  fifo.push(0);
  fifo.push(0);
  // Never empty, never more than four: the addresses it uses do not change any more.
  const int* lowest = &fifo.front();
  const int* highest = lowest;
  for (int i = 0; i < 1000; ++i) {
    fifo.pop();
    fifo.push(i);
    lowest = std::min<const int*>(lowest, &fifo.front());
    highest = std::max<const int*>(highest, &fifo.front());
  }
  EXPECT_LT(highest - lowest, 16);
}

}  // namespace
}  // namespace lockstep
