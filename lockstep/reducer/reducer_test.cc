#include "lockstep/reducer/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Gradient> gradients(const std::vector<std::int64_t>& counts) {
  std::vector<Gradient> result;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    result.push_back({fmt::format("p{}", i), counts[i], DType::f32});
  }
  return result;
}

// Gradient i of rank r holds r + i; the mean over 3 ranks is 1 + i. What is not in `order` is
// absent, and its slot is added all the same.
void one_pass(Reducer& reducer, Group& group, const std::vector<std::size_t>& order,
              const std::vector<std::int64_t>& counts) {
  reducer.begin();
  const auto fill = [&](std::size_t i) {
    auto* slot = reinterpret_cast<float*>(reducer.slot(i));
    std::fill(slot, slot + counts[i], static_cast<float>(group.rank()) + static_cast<float>(i));
  };
  for (const std::size_t i : order) {
    fill(i);
    reducer.ready(i);
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (reducer.is_ready(i)) continue;
    fill(i);
    reducer.absent(i);
  }
  reducer.finish();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto* slot = reinterpret_cast<const float*>(reducer.slot(i));
    EXPECT_TRUE(std::all_of(slot, slot + counts[i],
                            [&](float v) { return v == 1.0F + static_cast<float>(i); }));
  }
}

TEST(Reducer, AveragesInWhateverOrderGradientsComeAndForEveryBucketSize) {
  const std::vector<std::int64_t> counts = {100, 5, 70'000, 0, 1, 33};
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    for (const std::int64_t limit : {1, 500, 1 << 20}) {
      const auto errors = run_ranks(3, transport, [&](Group& group) {
        Reducer reducer(group, gradients(counts), {.buckets = {limit, limit}});
        // Each rank has its own order; launches must still agree.
        std::vector<std::size_t> order = {5, 4, 3, 2, 1, 0};
        std::rotate(order.begin(), order.begin() + group.rank(), order.end());
        for (int pass = 0; pass < 5; ++pass) one_pass(reducer, group, order, counts);
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST(Reducer, TheOrderOfRankZeroIsAdoptedWithWhatTheSlotsHold) {
  const std::vector<std::int64_t> counts = {5, 70, 1, 33};
  const auto errors = run_ranks(3, Transport::shm, [&](Group& group) {
    Reducer reducer(group, gradients(counts), {.buckets = {1, 1}});
    EXPECT_EQ(reducer.layout(), 0);
    // Rank 0 produces 1, 3 and 0, the others all, in another order.
    const std::vector<std::size_t> order = group.rank() == 0 ? std::vector<std::size_t>{1, 3, 0}
                                                             : std::vector<std::size_t>{0, 2, 1, 3};
    one_pass(reducer, group, order, counts);
    EXPECT_EQ(reducer.layout(), 1);
    EXPECT_LT(reducer.slot(1), reducer.slot(3));
    EXPECT_LT(reducer.slot(3), reducer.slot(0));
    EXPECT_LT(reducer.slot(0), reducer.slot(2));
    for (int pass = 0; pass < 3; ++pass) one_pass(reducer, group, order, counts);
    EXPECT_EQ(reducer.layout(), 1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Reducer, AFirstPassThatIsBrokenOffLeavesNoOrderBehind) {
  const std::vector<std::int64_t> counts = {5, 70, 1, 33};
  const auto errors = run_ranks(3, Transport::shm, [&](Group& group) {
    Reducer reducer(group, gradients(counts), {});
    reducer.begin();
    reducer.ready(2);
    reducer.abandon();  // nothing was under way
    for (int pass = 0; pass < 3; ++pass) one_pass(reducer, group, {1, 2, 0, 3}, counts);
    EXPECT_LT(reducer.slot(1), reducer.slot(2));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Reducer, WhatNobodyProducesIsKnownOnEveryRank) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    const auto errors = run_ranks(3, transport, [&](Group& group) {
      Reducer reducer(group, gradients({8, 8, 8}), {});
      for (int pass = 0; pass < 4; ++pass) {
        // 0 is produced by all, 1 by one rank in turn, 2 by nobody in odd passes.
        const auto produces = [&](std::size_t i) {
          return i == 0 || (i == 1 ? pass % 3 == group.rank() : pass % 2 == 0);
        };
        reducer.begin();
        for (const std::size_t i : {2u, 1u, 0u}) {
          produces(i) ? reducer.ready(i) : reducer.absent(i);
        }
        reducer.finish();
        EXPECT_TRUE(reducer.produced(0));
        EXPECT_TRUE(reducer.produced(1) || pass % 3 > 2);
        EXPECT_EQ(reducer.produced(2), pass % 2 == 0);
      }
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(Reducer, WeightsAndRanksWithoutData) {
  const auto errors = run_ranks(3, Transport::shm, [&](Group& group) {
    Reducer reducer(group, gradients({4}), {});
    const auto value = [&] { return reinterpret_cast<float*>(reducer.slot(0))[3]; };
    const auto pass = [&](const Part& part, float own) {
      reducer.begin(part);
      if (!part.live && !reducer.anybody_live()) return false;
      std::fill_n(reinterpret_cast<float*>(reducer.slot(0)), 4, own);
      part.live ? reducer.ready(0) : reducer.absent(0);
      reducer.finish();
      return true;
    };
    Part part{.divisor = Divisor::weights, .announced = true};
    part.weight = group.rank();
    EXPECT_TRUE(pass(part, 10.0F * static_cast<float>(group.rank())));
    EXPECT_EQ(value(), 10);
    part = {.divisor = Divisor::live_ranks, .announced = true};
    part.live = group.rank() != 1;
    EXPECT_TRUE(pass(part, part.live ? 6 : 0));
    EXPECT_EQ(value(), 6);
    part.live = false;
    EXPECT_FALSE(pass(part, 0));
    EXPECT_TRUE(pass({}, 3));
    EXPECT_EQ(value(), 3);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Reducer, WhoBringsAnInfinityIsFoundOnEveryTransport) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    for (const int culprit : {0, 2, 4}) {
      const auto errors = run_ranks(5, transport, [&](Group& group) {
        Reducer reducer(group, gradients({1000, 3000}), {});
        for (const bool broken : {false, true, false}) {
          reducer.begin();
          for (const std::size_t i : {1u, 0u}) {
            auto* slot = reinterpret_cast<float*>(reducer.slot(i));
            std::fill_n(slot, i == 0 ? 1000 : 3000, 1.0F);
            if (broken && i == 1 && group.rank() == culprit) slot[2345] = INFINITY;
            reducer.ready(i);
          }
          reducer.finish();
          EXPECT_EQ(reducer.not_finite(), broken);
          if (!broken) continue;
          const std::string text = reducer.describe_not_finite();
          EXPECT_THAT(text, HasSubstr("'p1'"));
          EXPECT_THAT(text, HasSubstr(fmt::format("rank {}", culprit)));
        }
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST(Reducer, TheRunnerIsChosenTogether) {
  std::vector<std::optional<Runner>> chosen(3);
  const auto errors = run_ranks(3, Transport::shm, [&](Group& group) {
    Reducer reducer(group, gradients({1000, 1000}), {});
    const std::vector<std::int64_t> counts = {1000, 1000};
    for (int pass = 0; pass < 12; ++pass) {
      one_pass(reducer, group, {1, 0}, counts);
      EXPECT_EQ(reducer.chosen_runner().has_value(), pass >= 8) << pass;
    }
    chosen[static_cast<std::size_t>(group.rank())] = reducer.chosen_runner();
    EXPECT_EQ(group.runner(), *reducer.chosen_runner());
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(chosen, Each(chosen[0]));
}

TEST(Reducer, AGradientThatIsReadyTwiceIsNamed) {
  Group group{Settings()};
  Reducer reducer(group, gradients({4, 4}), {});
  reducer.begin();
  reducer.ready(1);
  try {
    reducer.ready(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'p1'"));
  }
}

}  // namespace
}  // namespace lockstep
