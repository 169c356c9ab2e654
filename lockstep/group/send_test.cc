// Sends and receives between two ranks of a group.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/group/group.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::int64_t> numbers(std::int64_t count, int rank) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i * 100 + rank;
  return values;
}

TensorView view(std::vector<std::int64_t>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), DType::i64};
}

class SendOnEachTransport : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, SendOnEachTransport,
                         ::testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& of) { return of.param == Transport::tcp ? "tcp" : "shm"; });

TEST_P(SendOnEachTransport, RingsBothWaysAtOnceFillTheSocketBuffers) {
  for (const int ranks : {2, 3, 5}) {
    const auto errors = run_ranks(ranks, GetParam(), [&](Group& group) {
      const int right = (group.rank() + 1) % ranks, left = (group.rank() + ranks - 1) % ranks;
      for (const std::int64_t count : {0, 1, 1000, 2'000'003}) {  // the last: 16 MB
        auto mine = numbers(count, group.rank());
        auto from_left = numbers(count, -1), from_right = numbers(count, -2);
        const Work works[] = {group.async().send(view(mine), right),
                              group.async().send(view(mine), left),
                              group.async().receive(view(from_left), left),
                              group.async().receive(view(from_right), right)};
        for (const Work& work : works) work.wait();
        EXPECT_EQ(from_left, numbers(count, left));
        EXPECT_EQ(from_right, numbers(count, right));
      }
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(SendOnEachTransport, ManySmallOnesKeepTheirOrderBetweenCollectives) {
  const auto errors = run_ranks(3, GetParam(), [&](Group& group) {
    constexpr int kMessages = 200;
    std::vector<std::vector<std::int64_t>> values;
    for (int i = 0; i < kMessages; ++i) values.push_back(numbers(i % 7, 1000 * group.rank() + i));
    for (int round = 0; round < 3; ++round) {
      std::vector<Work> works;
      for (int i = 0; i < kMessages; ++i) {
        auto& message = values[static_cast<std::size_t>(i)];
        if (group.rank() == 0) works.push_back(group.async().send(view(message), 1 + i % 2));
        if (group.rank() == 1 + i % 2) works.push_back(group.async().receive(view(message), 0));
      }
      std::vector<std::int64_t> one = {1};
      group.all_reduce(view(one));
      EXPECT_EQ(one[0], 3);
      for (int i = 0; i < kMessages; ++i) {
        if (group.rank() != 1 + i % 2) continue;
        EXPECT_EQ(values[static_cast<std::size_t>(i)], numbers(i % 7, i));
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(SendOnEachTransport, BlockingOnesGoFromRankToRank) {
  const auto errors = run_ranks(4, GetParam(), [](Group& group) {
    auto values = numbers(100'000, group.rank());
    if (group.rank() > 0) group.receive(view(values), group.rank() - 1);
    if (group.rank() < 3) group.send(view(values), group.rank() + 1);
    EXPECT_EQ(values, numbers(100'000, 0));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(SendOnEachTransport, WhoSleepsInAReceiveIsWoken) {
  const auto errors = run_ranks(2, GetParam(), [](Group& group) {
    auto values = numbers(1'000'000, 1);  // longer than what a socket or ring holds
    for (int i = 0; i < 5; ++i) {
      const int late = i % 2;
      if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto start = std::chrono::steady_clock::now();
      if (group.rank() == 1) group.send(view(values), 0);
      if (group.rank() == 0) group.receive(view(values), 1);
      const auto took = std::chrono::steady_clock::now() - start;
      EXPECT_LT(took, std::chrono::seconds(2));
      EXPECT_EQ(values, numbers(1'000'000, 1));
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(SendOnEachTransport, WhatWasSentBeforeLeavingArrivesAndThenTheRankIsNamed) {
  const auto errors = run_ranks(2, GetParam(), [](Group& group) {
    auto values = numbers(1000, group.rank());
    if (group.rank() == 1) return group.send(view(values), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group.receive(view(values), 1);
    EXPECT_EQ(values, numbers(1000, 1));
    group.receive(view(values), 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[1], IsEmpty());
}

TEST_P(SendOnEachTransport, AFailureElsewhereEndsAReceive) {
  const auto errors = run_ranks(3, GetParam(), [](Group& group) {
    auto values = numbers(1000, group.rank());
    if (group.rank() == 0) group.receive(view(values), 1);
    if (group.rank() == 1) group.receive(view(values), 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group.receive(view(values), 99);  // refused: this rank ends
  });
  EXPECT_THAT(errors[0], HasSubstr("rank"));
  EXPECT_THAT(errors[1], HasSubstr("rank 2"));
}

TEST_P(SendOnEachTransport, AnotherLengthIsAnErrorThatNamesBoth) {
  const auto errors = run_ranks(2, GetParam(), [](Group& group) {
    auto values = numbers(group.rank() == 0 ? 41 : 43, 0);
    group.rank() == 0 ? group.send(view(values), 1) : group.receive(view(values), 0);
    group.barrier();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("i64[41]"), HasSubstr("i64[43]"))));
}

TEST_P(SendOnEachTransport, AnotherTypeIsAnErrorThatNamesBoth) {
  const auto errors = run_ranks(2, GetParam(), [](Group& group) {
    std::int64_t values[8] = {};
    group.rank() == 0 ? group.send({values, 8, DType::i64}, 1)
                      : group.receive({values, 16, DType::i32}, 0);
    group.barrier();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("i64[8]"), HasSubstr("i32[16]"))));
}

TEST_P(SendOnEachTransport, ItselfAndNoRankAreRefused) {
  const auto errors = run_ranks(2, GetParam(), [](Group& group) {
    auto values = numbers(3, 0);
    EXPECT_THROW(group.send(view(values), group.rank()), Error);
    EXPECT_THROW(group.receive(view(values), group.rank()), Error);
    EXPECT_THROW(group.send(view(values), 2), Error);
    EXPECT_THROW(group.receive(view(values), -1), Error);
    group.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace lockstep
