#include "lockstep/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using Settings = std::vector<std::string>;

TEST(RankEnvironment, NamesTheRanksPlaceAndKeepsTheRest) {
  const Settings inherited = {"HOME=/root", "RANK=7", "LOCKSTEP_STORE_FD=9", "LOCKSTEP_TERMINAL=1",
                              "RANKED=yes"};
  const JobEnvironment job{4, 1234, "abcd", false, 2, false, 0};
  EXPECT_THAT(rank_environment(inherited, job, 3, -1),
              UnorderedElementsAre("HOME=/root", "RANKED=yes", "RANK=3", "WORLD_SIZE=4",
                                   "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=1234", "LOCKSTEP_SECRET=abcd", "OMP_NUM_THREADS=2",
                                   "OPENBLAS_NUM_THREADS=2", "MKL_NUM_THREADS=2"));
}

TEST(RankEnvironment, OnlyRankZeroGetsTheSocketAndTheTerminal) {
  const Settings inherited = {"COLUMNS=3"};
  const JobEnvironment job{2, 1, "s", true, 1, true, 120};
  const Settings zero = rank_environment(inherited, job, 0, 5);
  EXPECT_THAT(zero, Contains("LOCKSTEP_ENCRYPT=1"));
  EXPECT_THAT(zero, Contains("LOCKSTEP_STORE_FD=5"));
  EXPECT_THAT(zero, Contains("LOCKSTEP_TERMINAL=1"));
  EXPECT_THAT(zero, Contains("COLUMNS=120"));
  EXPECT_THAT(zero, Not(Contains("COLUMNS=3")));
  const Settings one = rank_environment(inherited, job, 1, -1);
  EXPECT_THAT(one, Not(Contains(StartsWith("LOCKSTEP_STORE_FD"))));
  EXPECT_THAT(one, Not(Contains(StartsWith("LOCKSTEP_TERMINAL"))));
}

// S-PERF-02: a user's value is kept, and holds for the other libraries too.
TEST(ThreadVariables, KeepWhatTheUserSet) {
  EXPECT_THAT(thread_variables(Settings{"OMP_NUM_THREADS=3"}, 1).settings,
              ElementsAre("OPENBLAS_NUM_THREADS=3", "MKL_NUM_THREADS=3"));
  EXPECT_EQ(thread_variables(Settings{"OMP_NUM_THREADS=3"}, 1).summary, "OMP_NUM_THREADS=3 as set");
  EXPECT_THAT(thread_variables(Settings{"OMP_NUM_THREADS=4,2"}, 1).settings,
              ElementsAre("OPENBLAS_NUM_THREADS=4", "MKL_NUM_THREADS=4"));
  EXPECT_THAT(thread_variables(Settings{"MKL_NUM_THREADS=8", "OMP_NUM_THREADS="}, 2).settings,
              ElementsAre("OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2"));
  const Settings all = {"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=3"};
  EXPECT_THAT(thread_variables(all, 4).settings, IsEmpty());
  EXPECT_EQ(thread_variables(Settings{}, 4).summary, "4 threads each");
}

}  // namespace
}  // namespace lockstep
