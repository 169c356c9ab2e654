#include "lockstep/env/cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/env/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// A folder that looks like the root of a host, with only what control groups need.
class FakeRoot : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { folder_.write(path, text); }

  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(FakeRoot, QuotaOfVersionTwoIsTheSmallestOfAllAncestors) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 1 0:2 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_core_quota(root_).has_value());
  write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_core_quota(root_).value(), 4.0);
  write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_core_quota(root_).value(), 0.5);
}

TEST_F(FakeRoot, QuotaOfVersionOneInAContainerThatMountsOnlyItsSubtree) {
  write("proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n");
  write("proc/self/mountinfo",
        "30 1 0:2 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "31 1 0:3 /docker/x /sys/fs/cgroup/cpu ro shared:1 - cgroup cgroup rw,cpu,cpuacct\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cgroup_core_quota(root_).has_value());
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_DOUBLE_EQ(cgroup_core_quota(root_).value(), 2.5);
}

TEST_F(FakeRoot, NoControlGroupsMeansNoQuota) {
  EXPECT_FALSE(cgroup_core_quota(root_));
}

TEST(Cores, SharesAreDisjointNeighboursAndCoverAll) {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10};
  EXPECT_THAT(cores_of_rank(cores, 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(cores_of_rank(cores, 1, 2), ElementsAre(8, 9, 10));
  for (int ranks = 1; ranks <= 7; ++ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> share = cores_of_rank(cores, rank, ranks);
      EXPECT_FALSE(share.empty());
      all.insert(all.end(), share.begin(), share.end());
    }
    EXPECT_EQ(all, cores);
  }
}

TEST(Cores, MoreRanksThanCoresShareInTurn) {
  const std::vector<int> cores = {4, 6};
  EXPECT_THAT(cores_of_rank(cores, 0, 3), ElementsAre(4));
  EXPECT_THAT(cores_of_rank(cores, 1, 3), ElementsAre(6));
  EXPECT_THAT(cores_of_rank(cores, 2, 3), ElementsAre(4));
}

// S-PERF-02: 8 cores and 1, 2, 4, 8 ranks; a limit of 4; more ranks than cores.
TEST(Threads, AreTheUsableCoresDividedByTheRanksAndAtLeastOne) {
  EXPECT_EQ(threads_per_rank(8, 1), 8);
  EXPECT_EQ(threads_per_rank(8, 2), 4);
  EXPECT_EQ(threads_per_rank(8, 4), 2);
  EXPECT_EQ(threads_per_rank(8, 8), 1);
  EXPECT_EQ(threads_per_rank(4, 3), 1);
  EXPECT_EQ(threads_per_rank(2, 8), 1);
}

TEST(Cache, TheLargestCountsAndThereIsAnAnswerWithoutAny) {
  const TemporaryFolder root;
  EXPECT_EQ(shared_cache_bytes(root.path()), 32u << 20);
  root.write("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
  root.write("sys/devices/system/cpu/cpu0/cache/index1/size", "2048K\n");
  root.write("sys/devices/system/cpu/cpu0/cache/index2/size", "?\n");
  EXPECT_EQ(shared_cache_bytes(root.path()), 2u << 20);
}

TEST(Pin, RestrictsTheThreadAndWhatIsCounted) {
  const std::vector<int> before = allowed_cores();
  ASSERT_FALSE(before.empty());
  EXPECT_GE(usable_core_count(), 1);
  EXPECT_LE(usable_core_count(), static_cast<int>(before.size()));
  std::thread([&] {
    const std::vector<int> one = {before.back()};
    pin_this_thread(one);
    EXPECT_EQ(allowed_cores(), one);
    EXPECT_EQ(usable_core_count(), 1);
  }).join();
  EXPECT_EQ(allowed_cores(), before);
}

TEST(Pin, RefusesCoresThatDoNotExist) {
  const std::vector<int> none = {60000};
  EXPECT_THROW(pin_this_thread(none), Error);
}

}  // namespace
}  // namespace lockstep
