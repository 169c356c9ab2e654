#include "lockstep/c/handles.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using Pointer = std::shared_ptr<int>;

TEST(HandlesTest, AHandleStandsForItsObjectUntilItIsRemoved) {
  HandleNumbers numbers;
  Handles<Pointer> handles(numbers);
  const Pointer object = std::make_shared<int>(7);
  const std::uint64_t handle = handles.add(object);
  EXPECT_EQ(handles.find(handle), object);
  EXPECT_EQ(handles.remove(handle), object);
  EXPECT_EQ(handles.find(handle), std::nullopt);
  EXPECT_EQ(handles.remove(handle), std::nullopt);
}

TEST(HandlesTest, NoNumberIsUsedTwiceNorInAnotherTable) {
  HandleNumbers numbers;
  Handles<int> one(numbers);
  Handles<int> other(numbers);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t handle = (i % 2 == 0 ? one : other).add(i);
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_EQ((i % 2 == 0 ? other : one).find(handle), std::nullopt);
    if (i % 3 == 0) one.remove(handle);
  }
  for (std::uint64_t small = 0; small < 1000; ++small) EXPECT_EQ(one.find(small), std::nullopt);
}

TEST(HandlesTest, WhatWasFoundLivesOnWhenItsHandleIsRemoved) {
  HandleNumbers numbers;
  Handles<Pointer> handles(numbers);
  const std::uint64_t handle = handles.add(std::make_shared<int>(7));
  const auto found = handles.find(handle);
  handles.remove(handle);
  EXPECT_EQ(**found, 7);
}

TEST(HandlesTest, ManyThreadsAtOnce) {
  HandleNumbers numbers;
  Handles<int> handles(numbers);
  const std::uint64_t common = handles.add(-1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t own = handles.add(thread);
        EXPECT_EQ(handles.find(own), thread);
        EXPECT_EQ(handles.find(common), -1);
        EXPECT_EQ(handles.remove(own), thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep
