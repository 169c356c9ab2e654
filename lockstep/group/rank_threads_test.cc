#include "lockstep/group/rank_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/env/cpu.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct OwnMistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Sets a variable for a test's time; null: not set.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

class RankThreads : public ::testing::Test {
 private:
  const Variable record_{"LOCKSTEP_RECORD", "none"};
  const Variable threads_{"OMP_NUM_THREADS", nullptr};
};

Error error_of(int ranks, const RankBody& body) {
  try {
    run_rank_threads(ranks, body);
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::io, "no error");
}

TEST_F(RankThreads, EveryRankRunsWithTheGroupOfAll) {
  for (const char* transport : {"auto", "tcp"}) {
    const Variable chosen("LOCKSTEP_TRANSPORT", transport);
    for (const int ranks : {1, 2, 3, 5}) {
      std::vector<float> sums(static_cast<std::size_t>(ranks));
      run_rank_threads(ranks, [&](Group& group, int) {
        EXPECT_EQ(group.size(), ranks);
        EXPECT_EQ(group.local_size(), ranks);
        auto& sum = sums[static_cast<std::size_t>(group.rank())];
        sum = static_cast<float>(group.rank() + 1);
        group.all_reduce({&sum, 1, DType::f32});
      });
      EXPECT_THAT(sums, ::testing::Each(static_cast<float>(ranks * (ranks + 1)) / 2));
    }
  }
}

TEST_F(RankThreads, EachKeepsToItsShareOfTheCores) {
  const std::vector<int> cores = allowed_cores();
  const auto ranks = static_cast<int>(cores.size());
  std::mutex mutex;
  std::multiset<int> used;
  run_rank_threads(ranks, [&](Group&, int compute_threads) {
    EXPECT_EQ(compute_threads, threads_per_rank(usable_core_count(), ranks));
    const std::lock_guard lock(mutex);
    for (const int core : allowed_cores()) used.insert(core);
    std::thread([&] { EXPECT_LE(allowed_cores().size(), 1U); }).join();
  });
  EXPECT_THAT(used, ::testing::ElementsAreArray(cores));
  EXPECT_EQ(allowed_cores(), cores);  // the caller's are as they were
  run_rank_threads(ranks + 3, [](Group&, int compute_threads) { EXPECT_EQ(compute_threads, 1); });
  const Variable threads("OMP_NUM_THREADS", "3");
  run_rank_threads(2, [](Group&, int compute_threads) { EXPECT_EQ(compute_threads, 3); });
}

TEST_F(RankThreads, AnExceptionEndsAllRanksAndComesOutAsItWasThrown) {
  int ended = 0;
  std::mutex mutex;
  const auto run = [&] {
    run_rank_threads(3, [&](Group& group, int) {
      if (group.rank() == 1) throw OwnMistake("the user's own mistake");
      try {
        group.barrier();
        ADD_FAILURE() << "a barrier without rank 1";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::cancelled);
        EXPECT_THAT(error.what(), HasSubstr("rank 1: the user's own mistake"));
        const std::lock_guard lock(mutex);
        ++ended;
        throw;
      }
    });
  };
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run(), OwnMistake);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("rank 1 of 3: error: the user's own mistake"));
  EXPECT_EQ(ended, 2);
}

TEST_F(RankThreads, AnErrorNamesItsRank) {
  const Error error = error_of(2, [](Group& group, int) {
    if (group.rank() == 1) fail(Code::corrupt, "a damaged file");
    group.barrier();
  });
  EXPECT_EQ(error.code(), Code::corrupt);
  EXPECT_STREQ(error.what(), "rank 1 of 2: a damaged file");
}

// The group may break before the exception that broke it has left the rank.
TEST_F(RankThreads, TheCauseIsNotWhatFollowedFromIt) {
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_rank_threads(3,
                                [](Group& group, int) {
                                  if (group.rank() == 2) {
                                    group.abort("torn down on the way out");
                                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                                    throw OwnMistake("late");
                                  }
                                  group.barrier();
                                }),
               OwnMistake);
  ::testing::internal::GetCapturedStderr();
}

TEST_F(RankThreads, ARankThatLeavesEarlyIsAnErrorOfThoseThatNeedIt) {
  const Error error = error_of(2, [](Group& group, int) {
    if (group.rank() == 0) group.barrier();
  });
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 of 2: "), HasSubstr("rank 1, which has left")));
}

TEST_F(RankThreads, WhatIsNoExceptionComesOutToo) {
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_rank_threads(2,
                                [](Group& group, int) {
                                  if (group.rank() == 0) throw 7;
                                  group.barrier();
                                }),
               int);
  ::testing::internal::GetCapturedStderr();
}

TEST_F(RankThreads, RefusesWhatCannotBe) {
  EXPECT_THAT(error_of(0, [](Group&, int) {}).what(), HasSubstr("0 ranks asked for"));
  const Error nested = error_of(2, [](Group& group, int) {
    if (group.rank() == 0) run_rank_threads(1, [](Group&, int) {});
  });
  EXPECT_EQ(nested.code(), Code::unsupported);
  EXPECT_THAT(nested.what(),
              HasSubstr("rank 0 of 2: ranks as threads run in this process already"));
  const Variable rank("RANK", "0"), size("WORLD_SIZE", "1"), host("MASTER_ADDR", "127.0.0.1"),
      port("MASTER_PORT", "1234");
  const Error launched = error_of(2, [](Group&, int) {});
  EXPECT_EQ(launched.code(), Code::invalid_argument);
  EXPECT_THAT(launched.what(), HasSubstr("rank 0 of 1 (RANK, WORLD_SIZE)"));
}

}  // namespace
}  // namespace lockstep
