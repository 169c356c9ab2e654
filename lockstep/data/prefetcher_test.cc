#include "lockstep/data/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

using std::chrono::microseconds;

// Loads take different times, so that workers overtake each other.
void take_a_while(std::int64_t index) {
  std::this_thread::sleep_for(microseconds(index * 7919 % 13 * 40));
}

TEST(Prefetcher, GivesItemsInOrderWhateverTheWorkers) {
  for (const int workers : {0, 1, 2, 4}) {
    for (const std::int64_t ahead : {1, 2, 3, 8}) {
      Prefetcher<std::unique_ptr<std::int64_t>> items(
          {.item_count = 60, .workers = workers, .ahead = ahead}, [](std::int64_t index) {
            take_a_while(index);
            return std::make_unique<std::int64_t>(index * index);
          });
      for (std::int64_t i = 0; i < 60; ++i) EXPECT_EQ(*items.next(), i * i);
    }
  }
}

TEST(Prefetcher, LoadsAheadUpToTheBoundAndNoFurther) {
  for (const int workers : {1, 3, 6}) {
    constexpr std::int64_t kAhead = 4;
    std::atomic<std::int64_t> begun = 0;
    Prefetcher<int> items({.item_count = 50, .workers = workers, .ahead = kAhead},
                          [&](std::int64_t) { return static_cast<int>(++begun); });
    for (std::int64_t given = 0; given < 40; ++given) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (begun < given + kAhead && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(microseconds(50));
      }
      if (given % 10 == 0) std::this_thread::sleep_for(microseconds(2000));
      EXPECT_EQ(begun, given + kAhead);
      items.next();
    }
  }
}

TEST(Prefetcher, LoadsOnTheCallingThreadWithoutWorkers) {
  const auto caller = std::this_thread::get_id();
  int begun = 0;
  Prefetcher<bool> items({.item_count = 3}, [&](std::int64_t) {
    ++begun;
    return std::this_thread::get_id() == caller;
  });
  EXPECT_EQ(begun, 0);
  EXPECT_TRUE(items.next());
  EXPECT_EQ(begun, 1);
}

std::string error_of_next(Prefetcher<std::int64_t>& items) {
  try {
    items.next();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Prefetcher, ThrowsAtTheItemItBelongsTo) {
  for (const int workers : {0, 1, 2, 4}) {
    std::atomic<bool> later_failed = false;
    Prefetcher<std::int64_t> items({.item_count = 100, .workers = workers, .ahead = 8},
                                   [&](std::int64_t index) {
                                     // Where there are workers enough, 11 fails before 10 does.
                                     if (index == 10 && workers > 1) {
                                       while (!later_failed)
                                         std::this_thread::sleep_for(microseconds(50));
                                     }
                                     if (index == 11) later_failed = true;
                                     if (index >= 10)
                                       throw std::runtime_error("item " + std::to_string(index));
                                     return index;
                                   });
    for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(items.next(), i);
    EXPECT_EQ(error_of_next(items), "item 10");
    EXPECT_EQ(error_of_next(items), "item 10");
  }
}

TEST(Prefetcher, BeginsNothingAfterAnError) {
  std::atomic<std::int64_t> begun = 0;
  Prefetcher<std::int64_t> items({.item_count = 100, .workers = 1, .ahead = 50},
                                 [&](std::int64_t index) {
                                   ++begun;
                                   if (index == 5) throw std::runtime_error("five");
                                   return index;
                                 });
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(items.next(), i);
  EXPECT_EQ(error_of_next(items), "five");
  EXPECT_EQ(begun, 6);
}

// Alive items are counted: none is left behind, wherever the walk ends.
TEST(Prefetcher, EndsAnywhereAndLeaksNothing) {
  std::atomic<int> alive = 0;
  const auto counted = [&alive](std::int64_t index) {
    take_a_while(index);
    ++alive;
    return std::shared_ptr<int>(new int(0), [&alive](int* item) {
      --alive;
      delete item;
    });
  };
  for (const int workers : {0, 1, 3}) {
    for (const int taken : {0, 1, 2, 7, 12}) {
      Prefetcher<std::shared_ptr<int>> items({.item_count = 12, .workers = workers, .ahead = 4},
                                             counted);
      for (int i = 0; i < taken; ++i) items.next();
    }
    EXPECT_EQ(alive, 0);
  }
}

TEST(Prefetcher, OfNothingEnds) {
  Prefetcher<int> items({.item_count = 0, .workers = 2, .ahead = 2},
                        [](std::int64_t) { return 0; });
}

TEST(Prefetcher, BeginsEachWorkerFirst) {
  static thread_local bool begun_here = false;
  Prefetcher<bool> items(
      {.item_count = 20, .workers = 3, .ahead = 3}, [](std::int64_t) { return begun_here; },
      [] { begun_here = true; });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(items.next());
}

}  // namespace
}  // namespace lockstep
