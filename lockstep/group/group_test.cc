#include "lockstep/group/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string name_of(Transport transport) {
  return transport == Transport::tcp ? "tcp" : "shm";
}

class OnEachTransport : public ::testing::TestWithParam<Transport> {
 protected:
  std::vector<std::string> run(int ranks, const std::function<void(Group&)>& body,
                               int timeout_ms = 20'000) {
    return run_ranks(ranks, GetParam(), body, std::chrono::milliseconds(timeout_ms));
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, OnEachTransport,
                         ::testing::Values(Transport::shm, Transport::tcp),
                         [](const auto& of) { return name_of(of.param); });

std::vector<float> random_floats(std::int64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> values(-1e3F, 1e3F);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = values(random);
  return result;
}

TensorView view(std::vector<float>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), DType::f32};
}

// The sum of ranks [begin, end) in the canonical order: of two halves, the left one a power of two.
std::vector<float> canonical_sum(int begin, int end, std::int64_t count) {
  if (end - begin == 1) return random_floats(count, begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  std::vector<float> sum = canonical_sum(begin, begin + half, count);
  const std::vector<float> right = canonical_sum(begin + half, end, count);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

// As every rank must get it, to the bit.
std::vector<float> canonical_mean(int ranks, std::int64_t count) {
  std::vector<float> mean = canonical_sum(0, ranks, count);
  for (float& value : mean) value /= static_cast<float>(ranks);
  return mean;
}

bool same_bits(const float* values, const std::vector<float>& expected) {
  return expected.empty() || std::memcmp(values, expected.data(), expected.size() * 4) == 0;
}

constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 17, 255, 1024, 65'537, 300'001, 3'000'000};

TEST_P(OnEachTransport, AllReduceGivesTheCanonicalBitsOnEveryRank) {
  for (const int ranks : {1, 2, 3, 4, 5, 9}) {
    for (const std::int64_t count : kCounts) {
      const auto expected = canonical_mean(ranks, count);
      const auto errors = run(ranks, [&](Group& group) {
        auto values = random_floats(count, group.rank());
        group.all_reduce(view(values), Reduce::mean);
        EXPECT_TRUE(same_bits(values.data(), expected))
            << ranks << " ranks, " << count << " elements, rank " << group.rank();
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST_P(OnEachTransport, MemoryOfTheArenaGivesTheSameBits) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto errors = run(ranks, [&](Group& group) {
      const auto block = group.allocate(4 * 3'000'100);
      for (const std::int64_t count : kCounts) {
        for (const std::int64_t offset : {0, 1, 37}) {
          auto* data = reinterpret_cast<float*>(block->data()) + offset;
          const auto mine = random_floats(count, group.rank());
          std::copy(mine.begin(), mine.end(), data);
          group.all_reduce({data, count, DType::f32}, Reduce::mean);
          const auto expected = canonical_mean(ranks, count);
          EXPECT_TRUE(same_bits(data, expected)) << count;
        }
      }
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(OnEachTransport, BroadcastFromEveryRootAndAllGather) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const auto errors = run(ranks, [&](Group& group) {
      for (int root = 0; root < ranks; ++root) {
        for (const std::int64_t count : kCounts) {
          auto values = random_floats(count, group.rank());
          group.broadcast(view(values), root);
          EXPECT_EQ(values, random_floats(count, root));
        }
      }
      for (const std::int64_t count : {0, 1, 3, 1000, 200'003}) {
        auto mine = random_floats(count, group.rank());
        std::vector<float> all(static_cast<std::size_t>(count * ranks));
        group.all_gather(view(all), view(mine));
        for (int rank = 0; rank < ranks; ++rank) {
          const auto expected = random_floats(count, rank);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + rank * count));
        }
      }
      group.barrier();
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(OnEachTransport, EveryTypeAndReduction) {
  constexpr int kRanks = 3;
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int r = 0; r < kReduceCount; ++r) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<Reduce>(r);
      if (!is_defined(op, dtype)) continue;
      constexpr std::int64_t kCount = 4099;
      const auto fill = [&](int rank) {
        std::vector<std::byte> bytes(kCount * size_of(dtype));
        std::mt19937 random(static_cast<unsigned>(rank));
        for (std::byte& byte : bytes) {
          byte = static_cast<std::byte>(dtype == DType::boolean ? random() % 2 : random() % 64);
        }
        return bytes;
      };
      std::vector<std::vector<std::byte>> inputs;
      std::vector<Source> sources;
      for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(fill(rank));
      for (const auto& input : inputs) sources.push_back({input.data()});
      std::vector<std::byte> expected(inputs[0].size());
      std::byte* destination = expected.data();
      reduce({&destination, 1}, sources, kCount, dtype, op, kRanks);
      const auto errors = run(kRanks, [&](Group& group) {
        auto mine = fill(group.rank());
        group.all_reduce({mine.data(), kCount, dtype}, op);
        EXPECT_EQ(mine, expected) << to_string(dtype) << ' ' << to_string(op);
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST_P(OnEachTransport, ManyAsynchronousOperationsAtOnce) {
  const auto errors = run(4, [&](Group& group) {
    std::vector<std::vector<float>> values;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      values.push_back(random_floats(10'000 + i, group.rank()));
      works.push_back(group.async().all_reduce(view(values.back()), Reduce::mean));
    }
    works.push_back(group.async().barrier());
    for (std::size_t i = works.size(); i-- > 0;) {
      works[i].wait();
      EXPECT_TRUE(works[i].done());
      EXPECT_FALSE(works[i].error().has_value());
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], canonical_mean(4, static_cast<std::int64_t>(values[i].size())));
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(OnEachTransport, AnOperationEndsWithoutAnybodyWaitingForIt) {
  std::atomic<int> ended = 0;
  const auto errors = run(2, [&](Group& group) {
    auto values = random_floats(100'000, group.rank());
    const Work work = group.async().all_reduce(view(values), Reduce::mean);
    if (group.rank() == 0) {
      while (!work.done()) std::this_thread::yield();
      ++ended;
      while (ended < 2) std::this_thread::yield();
    } else {  // never polls: the progress thread alone
      while (ended < 1) std::this_thread::yield();
      ++ended;
    }
    work.wait();
    group.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(OnEachTransport, EmptyTensorsAreNoOpsAndTheSequenceStaysAligned) {  // S-NUM-07
  const auto errors = run(4, [&](Group& group) {
    std::vector<float> nothing;
    group.all_reduce(view(nothing));
    group.broadcast(view(nothing));
    group.all_gather(view(nothing), view(nothing));
    std::vector<float> one = {1};
    group.all_reduce(view(one));
    EXPECT_EQ(one[0], 4);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(OnEachTransport, AllPlacementsOfCancellingValuesGiveEqualBitsEverywhere) {  // S-NUM-09
  std::vector<float> order = {1e8F, 1, -1e8F, 1};
  std::sort(order.begin(), order.end());
  do {
    std::mutex mutex;
    std::vector<float> results;
    const auto errors = run(4, [&](Group& group) {
      std::vector<float> value = {order[static_cast<std::size_t>(group.rank())]};
      group.all_reduce(view(value));
      const std::lock_guard lock(mutex);
      results.push_back(value[0]);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_THAT(results, Each((order[0] + order[1]) + (order[2] + order[3])));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(OnEachTransport, DifferingCountsAreAnErrorOnEveryRankThatNamesBoth) {  // S-HANG-01
  const auto errors = run(4, [&](Group& group) {
    std::vector<float> values(group.rank() == 0 ? 409'600 : 409'598, 1.0F);
    group.all_reduce(view(values));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("409600"));
    EXPECT_THAT(error, HasSubstr("409598"));
  }
}

TEST_P(OnEachTransport, AFailureIsStickyWithTheFirstCause) {
  const auto errors = run(2, [&](Group& group) {
    std::vector<float> values(group.rank() == 0 ? 5 : 6);
    std::string first;
    try {
      group.all_reduce(view(values));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      first = error.what();
    }
    EXPECT_NE(first, "");
    EXPECT_THROW(group.barrier(), Error);
    EXPECT_THROW(group.async().all_reduce(view(values)), Error);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(OnEachTransport, ARankThatLeftIsNamedToThoseWhoWaitForIt) {
  const auto errors = run(3, [&](Group& group) {
    std::vector<float> values(10);
    group.all_reduce(view(values));
    if (group.rank() == 1) return;
    group.all_reduce(view(values));
  });
  EXPECT_THAT(errors[1], IsEmpty());
  for (const int rank : {0, 2})
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 1"));
}

TEST_P(OnEachTransport, ATimeoutNamesTheMissingRank) {
  std::atomic<int> given_up = 0;
  const auto errors = run(
      3,
      [&](Group& group) {
        std::vector<float> values(10);
        group.all_reduce(view(values));
        if (group.rank() == 1) {  // present, but not taking part
          while (given_up < 2) std::this_thread::yield();
          return;
        }
        try {
          group.all_reduce(view(values));
        } catch (const Error&) {
          ++given_up;
          throw;
        }
      },
      500);
  EXPECT_THAT(errors[1], IsEmpty());
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_THAT(errors[rank],
                ::testing::ContainsRegex("waited 0[.][5-9] s in all_reduce number 1"));
    EXPECT_THAT(errors[rank], HasSubstr("rank 1"));
  }
}

TEST_P(OnEachTransport, ExchangeGathersTextsInRankOrder) {
  const auto errors = run(3, [&](Group& group) {
    for (int i = 0; i < 5; ++i) {
      const auto texts = group.exchange(fmt::format("{}/{}", group.rank(), i));
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(texts[static_cast<std::size_t>(rank)], fmt::format("{}/{}", rank, i));
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(OnEachTransport, BadArgumentsAreRefusedAndTheGroupStaysUsable) {
  const auto errors = run(2, [&](Group& group) {
    std::vector<float> values = {1};
    bool flag = true;
    EXPECT_THROW(group.broadcast(view(values), 2), Error);
    EXPECT_THROW(group.broadcast(view(values), -1), Error);
    EXPECT_THROW(group.all_gather(view(values), view(values)), Error);
    EXPECT_THROW(group.all_reduce({nullptr, 3, DType::f32}), Error);
    EXPECT_THROW(group.all_reduce({&flag, 1, DType::boolean}, Reduce::mean), Error);
    group.all_reduce(view(values));
    EXPECT_EQ(values[0], 2);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Group, OfOneNeedsNobody) {
  Group group{Settings()};
  std::vector<float> values = {3};
  std::vector<float> out = {0};
  group.all_reduce(view(values), Reduce::mean);
  group.broadcast(view(values));
  group.all_gather(view(out), view(values));
  group.barrier();
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(group.exchange("a"), std::vector<std::string>{"a"});
  EXPECT_TRUE(group.async().barrier().done());
}

TEST(Group, ABlockMayOutliveItsGroup) {
  std::shared_ptr<SharedBlock> blocks[2];
  const auto errors = run_ranks(2, Transport::shm,
                                [&](Group& group) { blocks[group.rank()] = group.allocate(1000); });
  EXPECT_THAT(errors, Each(IsEmpty()));
  blocks[0]->data()[999] = std::byte{1};
}

TEST(Group, AbortBreaksAllRanksWithTheReason) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    const auto errors = run_ranks(3, transport, [&](Group& group) {
      std::vector<float> values(10);
      group.all_reduce(view(values));
      if (group.rank() == 1) group.abort("out of paper");
      group.all_reduce(view(values));
    });
    EXPECT_THAT(errors[1], HasSubstr("rank 1: out of paper"));
    // Over TCP a rank may see rank 1's connection close before it hears why.
    const auto reason = transport == Transport::shm ? "rank 1: out of paper" : "rank 1";
    EXPECT_THAT(errors, Each(HasSubstr(reason)));
  }
}

TEST(Group, AFailureWhileOthersFormTheGroupIsHeardByThem) {
  // Rank 2 dies right after joining; whatever the others are doing then, they are told.
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    Fd listener = listen_on("127.0.0.1", 0);
    Settings settings;
    settings.world_size = 3;
    settings.master_port = local_address(listener).port;
    settings.transport = transport;
    std::vector<std::thread> threads;
    std::vector<std::string> errors(2);
    for (int rank = 0; rank < 2; ++rank) {
      settings.rank = rank;
      settings.store_fd = rank == 0 ? listener.release() : -1;
      threads.emplace_back([settings, &error = errors[static_cast<std::size_t>(rank)]] {
        try {
          Group group(settings);
          group.barrier();
        } catch (const Error& caught) {
          error = caught.what();
        }
      });
    }
    settings.rank = 2;
    settings.local_world_size = 1;  // refused by itself after the first exchange
    EXPECT_THROW(Group{settings}, Error);
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(errors, Each(HasSubstr("LOCAL_WORLD_SIZE='1'")));
  }
}

TEST(Group, DifferingTransportsAreRefused) {
  Fd listener = listen_on("127.0.0.1", 0);
  Settings settings;
  settings.world_size = 2;
  settings.master_port = local_address(listener).port;
  std::thread other([settings]() mutable {
    settings.rank = 1;
    settings.transport = Transport::tcp;
    EXPECT_THROW(Group{settings}, Error);
  });
  settings.store_fd = listener.release();
  EXPECT_THROW(Group{settings}, Error);
  other.join();
}

TEST(Group, AStoreDescriptorThatDoesNotListenIsRefused) {
  Settings settings;
  settings.world_size = 2;
  settings.store_fd = 0;
  EXPECT_THROW(Group{settings}, Error);
}

TEST(Group, AllGatherMayWriteOverItsOwnPartButNotOverAnothers) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    const auto errors = run_ranks(3, transport, [&](Group& group) {
      std::vector<float> all(30, static_cast<float>(group.rank()));
      group.all_gather(view(all), {all.data() + 10 * group.rank(), 10, DType::f32});
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 10));
      EXPECT_THROW(group.all_gather(view(all), {all.data() + 5, 10, DType::f32}), Error);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(Group, DifferingBlockSizesAreRefused) {
  const auto errors = run_ranks(
      2, Transport::shm, [&](Group& group) { group.allocate(group.rank() == 0 ? 4096 : 40'960); });
  EXPECT_THAT(errors, Each(HasSubstr("allocate")));
}

}  // namespace
}  // namespace lockstep
