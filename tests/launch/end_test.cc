// Endings: failures and their report, signals, kills, and what is left behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/env/cgroup.h"
#include "tests/launch/launch.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome run_shell(int ranks, const std::string& script) {
  return run_launch({"-n", std::to_string(ranks), "--", "sh", "-c", script});
}

TEST(End, AllRanksZeroIsZeroAndEarlyOnesAreWaitedFor) {
  const Outcome outcome =
      run_shell(3, "[ $RANK = 0 ] && exit 0; sleep 0.2; [ $RANK = 2 ] && echo last; exit 0");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("last"));
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
}

TEST(SRdv04, TheExitCodeAndTheLastLinesOfTheFirstCauseAreReported) {
  const Outcome outcome =
      run_shell(4, "[ $RANK = 2 ] || exec sleep 1000; echo opening; echo disk on fire >&2; exit 3");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_THAT(outcome.err, ContainsRegex("lockstep run: rank 2 on [^ ]+ exited with code 3, "
                                         "[0-9.]+ s after the start; its last lines:\n"
                                         "    opening\n    disk on fire\n"
                                         "lockstep run: stopped ranks 0, 1, 3\n$"));
}

TEST(SRdv04, ASignalIsNamed) {
  const Outcome outcome =
      run_shell(4, "[ $RANK = 2 ] || exec sleep 1000; echo disk on fire; kill -SEGV $$");
  EXPECT_EQ(outcome.status, 128 + SIGSEGV);
  EXPECT_THAT(outcome.err, AllOf(ContainsRegex("rank 2 on [^ ]+ was killed by SIGSEGV"),
                                 HasSubstr("    disk on fire\n")));
}

TEST(SRdv04, LaterFailuresAreListedAfterTheFirst) {
  // Ranks 1 and 3 fail 50 ms after rank 2, as ranks do that have lost a peer.
  TemporaryFolder folder;
  const std::string flag = folder.path().string() + "/failed";
  const Outcome outcome = run_shell(
      4,
      fmt::format("case $RANK in 2) echo disk on fire; echo > {0}; exit 3;; 0) exec sleep 1000;; "
                  "esac; while [ ! -e {0} ]; do sleep 0.01; done; sleep 0.05; exit 1$RANK",
                  flag));
  EXPECT_EQ(outcome.status, 3);
  const std::size_t first = outcome.err.find("rank 2 on ");
  const std::size_t cause = outcome.err.find("disk on fire\n");
  const std::size_t one = outcome.err.find("then rank 1 exited with code 11");
  const std::size_t three = outcome.err.find("then rank 3 exited with code 13");
  ASSERT_NE(one, std::string::npos) << outcome.err;
  ASSERT_NE(three, std::string::npos) << outcome.err;
  EXPECT_LT(first, cause);
  EXPECT_LT(cause, std::min(one, three));
  EXPECT_THAT(outcome.err, HasSubstr("lockstep run: stopped rank 0\n"));
}

TEST(SRdv04, ARankThatFailsAtOnceIsReportedToo) {
  const Outcome outcome = run_shell(4, "[ $RANK = 2 ] && exit 3; exec sleep 1000");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.err, ContainsRegex("rank 2 on [^ ]+ exited with code 3.*printed nothing"));
}

TEST(End, RanksThatDoNotListenAreKilledAfterTheGrace) {
  Launch launch({"-n", "3", "--grace", "0.3", "sh", "-c",
                 fmt::format("[ $RANK = 1 ] || exec {} stubborn; read x; exit 7", rank_helper())});
  // Rank 1 has no input and fails at once; the others may not even be ready.
  const Outcome outcome = launch.wait(milliseconds(3'000));
  EXPECT_EQ(outcome.status, 7);
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
}

// S-FT-02.
TEST(SFt02, ASigkillIsExplained) {
  Launch launch({"-n", "4", "--prefix=always", "sh", "-c", "echo pid $$.; exec sleep 1000"});
  launch.wait_for_output("pid", 4);
  ::kill(number_after(launch.output(), "[rank 1] pid "), SIGKILL);
  const Outcome outcome = launch.wait(milliseconds(5'000));
  EXPECT_EQ(outcome.status, 137);
  EXPECT_THAT(outcome.err, ContainsRegex("rank 1 on [^ ]+ was killed by SIGKILL \\(if nobody sent "
                                         "it, the kernel may have run out of memory.*peak memory"));
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
}

// A control group below this process's own, with a memory limit; empty where that is not possible.
class MemoryLimit {
 public:
  MemoryLimit() {
    const CgroupFolders groups = cgroup_folders("memory");
    if (groups.folders.empty()) return;
    const fs::path folder = groups.folders.front() / fmt::format("lockstep_test_{}", ::getpid());
    if (::mkdir(folder.c_str(), 0755) != 0) return;
    path_ = folder;
    const bool first = groups.version == 1;
    std::ofstream limit(path_ + (first ? "/memory.limit_in_bytes" : "/memory.max"));
    limit << (256 << 20) << std::flush;
    works_ = limit.good() && fs::exists(path_ + "/cgroup.procs");
    std::ofstream(path_ + (first ? "/memory.memsw.limit_in_bytes" : "/memory.swap.max"))
        << (first ? 256 << 20 : 0);
  }
  ~MemoryLimit() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  bool works() const { return works_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool works_ = false;
};

TEST(SFt02, RunningOutOfMemoryIsSaid) {
  const MemoryLimit limit;
  if (!limit.works()) GTEST_SKIP() << "this host lets the test make no memory control group";
  const Outcome outcome =
      run_launch({"-n", "4", "--", rank_helper(), "hog"}, {.cgroup = limit.path()});
  EXPECT_EQ(outcome.status, 137);
  EXPECT_THAT(outcome.err, ContainsRegex("rank 1 on [^ ]+ was killed by SIGKILL: out of memory; "
                                         "peak memory [0-9.]+ MB"));
}

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, EndEverythingWithinTwoSecondsEvenIfRanksIgnoreThem) {
  Launch launch({"-n", "3", "--", rank_helper(), "stubborn"});
  launch.wait_for_output("ready", 3);
  const auto sent = std::chrono::steady_clock::now();
  launch.send(GetParam());
  const Outcome outcome = launch.wait(milliseconds(2'000));
  EXPECT_LT(std::chrono::steady_clock::now() - sent, milliseconds(2'000));
  EXPECT_EQ(outcome.status, 128 + GetParam());
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
  EXPECT_THAT(outcome.err, HasSubstr("killed ranks 0–2, which did not end when told to"));
}

INSTANTIATE_TEST_SUITE_P(Each, Signals, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST(End, ASignalReachesRanksThatWantIt) {
  Launch launch({"-n", "2", "--grace", "10", "sh", "-c",
                 "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.01; done"});
  launch.wait_for_output("ready", 2);
  launch.send(SIGTERM);
  const Outcome outcome = launch.wait(milliseconds(5'000));
  EXPECT_EQ(outcome.status, 128 + SIGTERM);
  EXPECT_THAT(outcome.out, ContainsRegex("got TERM(.|\n)*got TERM"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("killed")));
}

TEST(End, ASecondSignalKillsAtOnce) {
  Launch launch({"-n", "2", "--grace", "60", "--", rank_helper(), "stubborn"});
  launch.wait_for_output("ready", 2);
  launch.send(SIGINT);
  launch.wait_for_error("SIGINT: stopping");  // two signals at the very same time are one
  launch.send(SIGINT);
  EXPECT_EQ(launch.wait(milliseconds(2'000)).status, 128 + SIGINT);
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
}

// Waits until the processes that "family" lines in the output name are gone.
bool family_is_gone(const std::string& output, int families) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  std::vector<pid_t> pids;
  for (const std::string& line : lines_of(output)) {
    const std::size_t at = line.find("family ");
    if (at == std::string::npos) continue;
    const int first = number_after(line, "family ");
    pids.push_back(first);
    pids.push_back(number_after(line, fmt::format("family {} ", first)));
  }
  EXPECT_EQ(pids.size(), 2U * static_cast<std::size_t>(families)) << output;
  for (const pid_t pid : pids) {
    EXPECT_GT(pid, 0);
    while (process_exists(pid)) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  return true;
}

TEST(End, KillingTheLauncherLeavesNothing) {
  for (const bool whole_group : {false, true}) {
    Launch launch({"-n", "3", "--", rank_helper(), "family"});
    launch.wait_for_output("ready", 3);
    const int port = number_after(launch.wait_for_error("store at 127.0.0.1:"), "127.0.0.1:");
    ASSERT_TRUE(is_listening(port));
    ::kill(whole_group ? -launch.pid() : launch.pid(), SIGKILL);
    EXPECT_EQ(launch.wait().status, 128 + SIGKILL);
    EXPECT_TRUE(launch.nothing_left());
    EXPECT_TRUE(family_is_gone(launch.output(), 3));
    EXPECT_FALSE(is_listening(port));
  }
}

TEST(End, WhatRanksLeaveBehindIsKilledAtANormalEnd) {
  Launch launch({"-n", "2", "--", rank_helper(), "family-left"});
  const Outcome outcome = launch.wait(milliseconds(5'000));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(family_is_gone(outcome.out, 2));
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
}

int kill_guards_of(pid_t launcher) {
  int guards = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (read_text(entry.path() / "comm") != "lockstep-guard\n") continue;
    if (number_after(read_text(entry.path() / "status"), "PPid:\t") != launcher) continue;
    ::kill(std::atoi(entry.path().filename().c_str()), SIGKILL);
    ++guards;
  }
  return guards;
}

// On a busy machine the ranks may be ready before the guard has given itself its name.
void kill_guard_of(pid_t launcher) {
  int guards = 0;
  for (int i = 0; i < 500 && guards == 0; ++i) {
    guards = kill_guards_of(launcher);
    if (guards == 0) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(guards, 1);
}

TEST(End, KillingTheGuardDoesNotSpoilTheEnd) {
  Launch launch({"-n", "2", "--", rank_helper(), "family"});
  launch.wait_for_output("ready", 2);
  kill_guard_of(launch.pid());
  launch.send(SIGTERM);
  EXPECT_EQ(launch.wait(milliseconds(3'000)).status, 128 + SIGTERM);
  EXPECT_TRUE(launch.nothing_left());
  EXPECT_TRUE(family_is_gone(launch.output(), 2));
}

TEST(End, KillingTheGuardAndTheLauncherLeavesNoRank) {
  Launch launch({"-n", "2", "--", rank_helper(), "stubborn"});
  launch.wait_for_output("ready", 2);
  kill_guard_of(launch.pid());
  launch.send(SIGKILL);
  EXPECT_EQ(launch.wait().status, 128 + SIGKILL);
  EXPECT_TRUE(launch.nothing_left());
}

TEST(End, IgnoredHangupsStayIgnored) {
  Launch launch({"-n", "1", "sh", "-c", "echo ready; sleep 0.3; echo done"},
                {.ignored_signal = SIGHUP});
  launch.wait_for_output("ready");
  launch.send(SIGHUP);
  EXPECT_EQ(launch.wait().status, 0);
}

}  // namespace
}  // namespace lockstep::launch_test
