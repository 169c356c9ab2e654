#include "lockstep/reducer/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

TEST(PlanBuckets, FillsFromTheLastParameterAndKeepsTypesApart) {
  auto list = gradients({16, 16, 16, 16});
  list[1].dtype = DType::f64;
  const BucketPlan plan = plan_buckets(list, 1 << 20);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_THAT(plan.buckets[0].gradients, ElementsAre(3, 2));
  EXPECT_THAT(plan.buckets[1].gradients, ElementsAre(1));
  EXPECT_THAT(plan.buckets[2].gradients, ElementsAre(0));
}

TEST(PlanBuckets, RespectsTheLimitAndGivesAGiantItsOwn) {
  const BucketPlan plan = plan_buckets(gradients({16, 5000, 16, 16, 16}), 128);
  ASSERT_EQ(plan.buckets.size(), 4u);
  EXPECT_THAT(plan.buckets[0].gradients, ElementsAre(4, 3));
  EXPECT_THAT(plan.buckets[1].gradients, ElementsAre(2));
  EXPECT_THAT(plan.buckets[2].gradients, ElementsAre(1));
  EXPECT_THAT(plan.buckets[3].gradients, ElementsAre(0));
}

TEST(PlanBuckets, SlotsAreAlignedAndDoNotOverlap) {
  const auto list = gradients({1, 17, 0, 3, 1000, 5});
  const BucketPlan plan = plan_buckets(list, 256);
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(plan.offset_bytes[a], list[a].count) <
           std::pair(plan.offset_bytes[b], list[b].count);
  });
  std::size_t end = 0;
  for (const std::size_t i : order) {
    EXPECT_EQ(plan.offset_bytes[i] % 64, 0u);
    EXPECT_GE(plan.offset_bytes[i], end);
    end = plan.offset_bytes[i] + static_cast<std::size_t>(list[i].count) * 4;
  }
  EXPECT_LE(end, plan.block_bytes);
}

// Gradient i of rank r holds r + i; the mean over 3 ranks is 1 + i.
void one_pass(Reducer& reducer, Group& group, const std::vector<std::size_t>& order,
              const std::vector<std::int64_t>& counts) {
  reducer.begin();
  for (const std::size_t i : order) {
    auto* slot = reinterpret_cast<float*>(reducer.slot(i));
    std::fill(slot, slot + counts[i], static_cast<float>(group.rank()) + static_cast<float>(i));
    reducer.ready(i);
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
        Reducer reducer(group, gradients(counts), limit);
        // Each rank has its own order; launches must still agree.
        std::vector<std::size_t> order = {5, 4, 3, 2, 1, 0};
        std::rotate(order.begin(), order.begin() + group.rank(), order.end());
        for (int pass = 0; pass < 5; ++pass) one_pass(reducer, group, order, counts);
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST(Reducer, AGradientThatIsReadyTwiceIsNamed) {
  Group group{Settings()};
  Reducer reducer(group, gradients({4, 4}), 1 << 20);
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
