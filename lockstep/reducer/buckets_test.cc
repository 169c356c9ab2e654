#include "lockstep/reducer/buckets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<Gradient> gradients(const std::vector<std::int64_t>& counts) {
  std::vector<Gradient> result;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    result.push_back({fmt::format("p{}", i), counts[i], DType::f32});
  }
  return result;
}

BucketPlan plan(const std::vector<Gradient>& list, std::int64_t bytes_max,
                std::int64_t first_bytes_max = 1 << 20) {
  return plan_buckets(list, reverse_order(list.size()), {bytes_max, first_bytes_max});
}

TEST(PlanBuckets, FillsInTheOrderGiven) {
  const auto list = gradients({16, 16, 16, 16});
  const BucketPlan in_order = plan_buckets(list, {2, 0, 3, 1}, {128, 128});
  ASSERT_EQ(in_order.buckets.size(), 2u);
  EXPECT_THAT(in_order.buckets[0].gradients, ElementsAre(2, 0));
  EXPECT_THAT(in_order.buckets[1].gradients, ElementsAre(3, 1));
  EXPECT_EQ(in_order.offset_bytes[2], 0u);
  EXPECT_EQ(in_order.offset_bytes[3], 128u);
}

// Types that alternate make two buckets, not four; the one that is complete first is launched
// first.
TEST(PlanBuckets, KeepsTypesApart) {
  auto list = gradients({16, 16, 16, 16});
  list[1].dtype = list[3].dtype = DType::f64;
  const BucketPlan mixed = plan(list, 1 << 20);
  ASSERT_EQ(mixed.buckets.size(), 2u);
  EXPECT_THAT(mixed.buckets[0].gradients, ElementsAre(3, 1));
  EXPECT_THAT(mixed.buckets[1].gradients, ElementsAre(2, 0));
}

TEST(PlanBuckets, RespectsTheLimitsAndGivesAGiantItsOwn) {
  const BucketPlan limited = plan(gradients({16, 5000, 16, 16, 16}), 128);
  ASSERT_EQ(limited.buckets.size(), 4u);
  EXPECT_THAT(limited.buckets[0].gradients, ElementsAre(4, 3));
  EXPECT_THAT(limited.buckets[1].gradients, ElementsAre(2));
  EXPECT_THAT(limited.buckets[2].gradients, ElementsAre(1));
  EXPECT_THAT(limited.buckets[3].gradients, ElementsAre(0));
  const BucketPlan small_first = plan(gradients({16, 16, 16, 16}), 1 << 20, 64);
  ASSERT_EQ(small_first.buckets.size(), 2u);
  EXPECT_THAT(small_first.buckets[0].gradients, ElementsAre(3));
}

TEST(PlanBuckets, SlotsAreAlignedAndDoNotOverlap) {
  const auto list = gradients({1, 17, 0, 3, 1000, 5});
  const BucketPlan small = plan(list, 256);
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(small.offset_bytes[a], list[a].count) <
           std::pair(small.offset_bytes[b], list[b].count);
  });
  std::size_t end = 0;
  for (const std::size_t i : order) {
    EXPECT_EQ(small.offset_bytes[i] % 64, 0u);
    EXPECT_GE(small.offset_bytes[i], end);
    end = small.offset_bytes[i] + static_cast<std::size_t>(list[i].count) * 4;
  }
  EXPECT_LE(end, small.status_offset_bytes);
  EXPECT_LE(small.status_offset_bytes + 8, small.block_bytes);
}

TEST(PlanBuckets, NoGradientsNoBuckets) {
  EXPECT_TRUE(plan({}, 128).buckets.empty());
}

}  // namespace
}  // namespace lockstep
