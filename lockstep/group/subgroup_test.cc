// Groups of some of a group's ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lockstep/group/group.h"
#include "lockstep/group/ranks_as_threads.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::int64_t sum_in(Group& group, std::int64_t value) {
  group.all_reduce({&value, 1, DType::i64});
  return value;
}

// What each rank of `group` gives, in rank order: who they are, if they give their world ranks.
std::vector<std::int64_t> all_of(Group& group, std::int64_t value) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(group.size()));
  group.all_gather({values.data(), group.size(), DType::i64}, {&value, 1, DType::i64});
  return values;
}

struct Place {
  const char* name;
  Transport transport;
  std::vector<int> hosts;  // of 6 ranks
};

class SubgroupOnEachPlace : public ::testing::TestWithParam<Place> {
 protected:
  void run(int ranks, const std::function<void(Group&)>& body) {
    Settings settings;
    settings.transport = GetParam().transport;
    settings.join_timeout = settings.operation_timeout = std::chrono::seconds(20);
    std::vector<int> hosts = GetParam().hosts;
    if (!hosts.empty()) hosts.resize(static_cast<std::size_t>(ranks));
    EXPECT_THAT(run_job(ranks, settings, body, hosts), Each(IsEmpty()));
  }
};
INSTANTIATE_TEST_SUITE_P(
    Places, SubgroupOnEachPlace,
    ::testing::Values(Place{"shm", Transport::shm, {}}, Place{"tcp", Transport::tcp, {}},
                      Place{"hosts", Transport::automatic, {0, 0, 1, 1, 1, 0}}),
    [](const auto& of) { return of.param.name; });

TEST_P(SubgroupOnEachPlace, ColoursAndKeysDecideWhoAndInWhichOrder) {
  run(6, [](Group& world) {
    const int rank = world.rank();
    auto part = world.split(rank % 2, -rank);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(part->rank(), 2 - rank / 2);
    if (rank % 2 == 0) {
      EXPECT_THAT(all_of(*part, rank), ElementsAre(4, 2, 0));
    }
    if (rank % 2 == 1) {
      EXPECT_THAT(all_of(*part, rank), ElementsAre(5, 3, 1));
    }
    auto same = world.split(7);  // one colour, no key: the same ranks in the same order
    EXPECT_EQ(same->rank(), rank);
    EXPECT_EQ(sum_in(*same, 1), 6);
    EXPECT_EQ(sum_in(world, 1), 6);
  });
}

TEST_P(SubgroupOnEachPlace, ANegativeColourIsInNone) {
  run(6, [](Group& world) {
    auto part = world.split(world.rank() < 2 ? -1 : 0);
    EXPECT_EQ(part.has_value(), world.rank() >= 2);
    if (part) {
      EXPECT_EQ(sum_in(*part, world.rank()), 2 + 3 + 4 + 5);
    }
    auto nobody = world.split(-5);
    EXPECT_FALSE(nobody.has_value());
    world.barrier();
  });
}

TEST_P(SubgroupOnEachPlace, OfListedRanksInThatOrder) {
  run(6, [](Group& world) {
    auto part = world.subgroup({5, 0, 3});
    EXPECT_EQ(part.has_value(), world.rank() % 5 == 0 || world.rank() == 3);
    if (part) {
      EXPECT_THAT(all_of(*part, world.rank()), ElementsAre(5, 0, 3));
    }
    EXPECT_FALSE(world.subgroup({}).has_value());
    EXPECT_THROW(world.subgroup({1, 1}), Error);
    EXPECT_THROW(world.subgroup({6}), Error);
    EXPECT_EQ(sum_in(world, 1), 6);
  });
}

TEST_P(SubgroupOnEachPlace, OfASubgroupAgainAndOfOne) {
  run(6, [](Group& world) {
    auto half = world.split(world.rank() / 3);
    auto two = half->split(half->rank() == 1 ? 1 : 0, -half->rank());
    if (half->rank() == 1) {
      EXPECT_EQ(two->size(), 1);
      EXPECT_EQ(sum_in(*two, 9), 9);
      two->barrier();
      EXPECT_EQ(two->exchange("x"), std::vector<std::string>{"x"});
      EXPECT_TRUE(two->split(0).has_value());
      EXPECT_NE(two->allocate(100)->data(), nullptr);
    } else {
      const int base = world.rank() / 3 * 3;
      EXPECT_THAT(all_of(*two, world.rank()), ElementsAre(base + 2, base));
      auto one = two->split(two->rank());
      EXPECT_EQ(sum_in(*one, 5), 5);
    }
    const auto texts = half->exchange(fmt::format("{}", world.rank()));
    EXPECT_EQ(texts[1], fmt::format("{}", world.rank() / 3 * 3 + 1));
    EXPECT_EQ(sum_in(world, 1), 6);
  });
}

// Replicate × shard: every rank is in a row and a column.
TEST_P(SubgroupOnEachPlace, OperationsInTwoGroupsAndTheParentGoOnSideBySide) {
  run(6, [](Group& world) {
    auto row = world.split(world.rank() / 3);
    auto column = world.split(world.rank() % 3);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> a(30'000, 1), b(50'000, 2), c(10'000, 3);
      const auto view = [](std::vector<float>& values) {
        return TensorView(values.data(), static_cast<std::int64_t>(values.size()), DType::f32);
      };
      const Work works[] = {row->async().all_reduce(view(a)), column->async().all_reduce(view(b)),
                            world.async().all_reduce(view(c))};
      // Waited for in another order on every rank.
      for (int i = 0; i < 3; ++i) works[(i + world.rank() + round) % 3].wait();
      EXPECT_THAT(a, Each(3));
      EXPECT_THAT(b, Each(4));
      EXPECT_THAT(c, Each(18));
    }
  });
}

TEST_P(SubgroupOnEachPlace, SharedBlocksOfASubgroup) {
  run(6, [](Group& world) {
    auto part = world.split(world.rank() % 2);
    const auto block = part->allocate(40'000);
    auto* values = reinterpret_cast<float*>(block->data());
    std::fill_n(values, 10'000, static_cast<float>(world.rank()));
    part->all_reduce({values, 10'000, DType::f32});
    EXPECT_EQ(values[9'999], world.rank() % 2 == 0 ? 6 : 9);
  });
}

TEST_P(SubgroupOnEachPlace, GroupsEndInAnyOrder) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    run(4, [seed](Group& given) {
      std::vector<std::unique_ptr<Group>> groups;
      groups.push_back(std::make_unique<Group>(std::move(given)));
      for (int i = 0; i < 4; ++i) {
        Group& parent = *groups[static_cast<std::size_t>(i / 2)];
        groups.push_back(std::make_unique<Group>(*parent.split(0, 0)));
      }
      for (const auto& group : groups) EXPECT_EQ(sum_in(*group, 1), 4);
      std::mt19937 random(seed);
      std::shuffle(groups.begin(), groups.end(), random);
      while (!groups.empty()) {
        groups.pop_back();
        for (const auto& group : groups) EXPECT_EQ(sum_in(*group, 1), 4);
      }
    });
  }
}

TEST_P(SubgroupOnEachPlace, AFailureInAGroupIsOneOfTheJob) {
  Settings settings;
  settings.transport = GetParam().transport;
  settings.join_timeout = settings.operation_timeout = std::chrono::seconds(20);
  const auto errors = run_job(
      4, settings,
      [](Group& world) {
        auto part = world.split(world.rank() / 2);
        std::vector<float> values(world.rank() == 0 ? 5 : 6);
        if (world.rank() >= 2) return world.barrier();
        part->all_reduce({values.data(), static_cast<std::int64_t>(values.size()), DType::f32});
      },
      GetParam().hosts.empty() ? std::vector<int>() : std::vector<int>{0, 0, 1, 1});
  EXPECT_THAT(errors, Each(HasSubstr("f32[5]")));
}

TEST(Subgroup, ListsThatDifferAreRefusedOnEveryRank) {
  const auto errors = run_ranks(3, Transport::shm, [](Group& world) {
    const std::vector<int> mine = {0, world.rank() == 2 ? 2 : 1};
    EXPECT_THROW(world.subgroup(mine), Error);
    world.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Subgroup, OfAJobOfOne) {
  Group world{Settings()};
  auto part = world.split(3);
  EXPECT_EQ(sum_in(*part, 4), 4);
  EXPECT_FALSE(world.split(-1).has_value());
  auto listed = world.subgroup({0});
  EXPECT_EQ(sum_in(*listed, 2), 2);
}

}  // namespace
}  // namespace lockstep
