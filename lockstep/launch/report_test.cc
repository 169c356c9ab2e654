#include "lockstep/launch/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RankEnd exited(int rank, int code, double after_s) {
  RankEnd end;
  end.rank = rank;
  end.code = code;
  end.after_s = after_s;
  return end;
}

RankEnd killed(int rank, int signal) {
  RankEnd end = exited(rank, signal, 1);
  end.by_signal = true;
  end.peak_memory_bytes = 480'000'000;
  return end;
}

TEST(FailureReport, NamesTheFirstCauseFirst) {
  RankEnd first = exited(2, 3, 0.314);
  first.last_lines = {"opening", "disk on fire"};
  EXPECT_THAT(
      failure_report("host7", {first, exited(1, 1, 0.36)}, {0, 3}),
      ElementsAre("lockstep run: rank 2 on host7 exited with code 3, 0.31 s after the start; "
                  "its last lines:",
                  "    opening", "    disk on fire",
                  "lockstep run: then rank 1 exited with code 1, after 0.36 s",
                  "lockstep run: stopped ranks 0, 3"));
}

TEST(FailureReport, SaysWhatIsKnownAboutMemory) {
  RankEnd end = killed(1, SIGKILL);
  EXPECT_THAT(failure_report("h", {end}, {}).front(),
              AllOf(HasSubstr("SIGKILL"), HasSubstr("may have run out of memory"),
                    HasSubstr("peak memory 480.0 MB"), HasSubstr("printed nothing")));
  end.out_of_memory = true;
  EXPECT_THAT(failure_report("h", {end}, {}).front(),
              AllOf(HasSubstr("SIGKILL: out of memory"), Not(HasSubstr("may have"))));
  end = killed(1, SIGSEGV);
  end.core_dumped = true;
  EXPECT_THAT(failure_report("h", {end}, {}).front(), HasSubstr("SIGSEGV (core dumped)"));
}

TEST(FailureReport, IsShortForManyRanks) {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < 1000; ++rank) ends.push_back(exited(rank, 1, 1));
  const std::vector<std::string> lines = failure_report("h", ends, {});
  EXPECT_LE(lines.size(), 12U);
  EXPECT_THAT(lines.back(), HasSubstr("991 more ranks"));
}

TEST(ExitStatus, IsTheCodeOr128AndTheSignal) {
  EXPECT_EQ(exit_status_of(exited(0, 3, 0)), 3);
  EXPECT_EQ(exit_status_of(killed(0, SIGSEGV)), 139);
  EXPECT_EQ(exit_status_of(killed(0, SIGKILL)), 137);
}

TEST(SignalName, IsTheUsualOne) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(40), "signal 40");
}

}  // namespace
}  // namespace lockstep
