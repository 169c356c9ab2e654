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
