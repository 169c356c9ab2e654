// What comes out: lines, prefixes, files, terminals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/launch/chatter.h"
#include "tests/launch/launch.h"

namespace lockstep::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 8;

// Checks that `lines` are what `rank` printed on one stream, in order.
void expect_chatter(const std::vector<std::string>& lines, int rank, bool to_stderr) {
  ASSERT_EQ(lines.size(), kChatterLines / 2U) << "rank " << rank;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const int index = static_cast<int>(2 * i) + (to_stderr ? 1 : 0);
    ASSERT_TRUE(lines[i] == chatter_line(rank, index))
        << "rank " << rank << " line " << index << ": " << lines[i].substr(0, 300);
  }
}

bool was_stderr(const std::string& line) {
  return goes_to_stderr(number_after(line, " line "));
}

// Takes "[rank R] " off `lines` and sorts them by rank and stream.
struct Chatter {
  std::vector<std::string> by_rank[kRanks][2];

  void add(const std::string& line) {
    const int rank = number_after(line, "[rank ");
    const std::string prefix = fmt::format("[rank {}] ", rank);
    ASSERT_TRUE(rank >= 0 && rank < kRanks && line.starts_with(prefix)) << line.substr(0, 300);
    const std::string text = line.substr(prefix.size());
    by_rank[rank][was_stderr(text) ? 1 : 0].push_back(text);
  }
  void check() const {
    for (int rank = 0; rank < kRanks; ++rank) {
      expect_chatter(by_rank[rank][0], rank, false);
      expect_chatter(by_rank[rank][1], rank, true);
    }
  }
};

TEST(SRdv08, LinesOfEightRanksNeverMixAndFilesHoldEveryByte) {
  TemporaryFolder folder;
  const std::string logs = folder.path().string() + "/a/logs";
  const Outcome outcome =
      run_launch({"-n", "8", "--prefix", "always", "--log-dir", logs, rank_helper(), "chatter"},
                 {.one_pipe = true});
  ASSERT_EQ(outcome.status, 0);
  Chatter chatter;
  for (const std::string& line : lines_of(outcome.out)) {
    if (!line.starts_with("lockstep run: ")) chatter.add(line);
  }
  chatter.check();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string text = read_text(fmt::format("{}/rank-{}.log", logs, rank));
    std::vector<std::string> streams[2];
    std::size_t bytes = 0;
    for (const std::string& line : lines_of(text)) {
      streams[was_stderr(line) ? 1 : 0].push_back(line);
      bytes += line.size() + 1;
    }
    expect_chatter(streams[0], rank, false);
    expect_chatter(streams[1], rank, true);
    EXPECT_EQ(text.size(), bytes - 1) << "the last line has no newline";
  }
}

TEST(SRdv08, StreamsStayApartAndAutomaticPrefixesComeWithTheSecondRank) {
  const Outcome outcome = run_launch({"-n", "8", rank_helper(), "chatter"});
  ASSERT_EQ(outcome.status, 0);
  Chatter chatter;
  bool prefixed = false;
  for (const std::string* text : {&outcome.out, &outcome.err}) {
    for (const std::string& line : lines_of(*text)) {
      if (line.starts_with("lockstep run: ")) continue;
      EXPECT_EQ(was_stderr(line), text == &outcome.err);
      if (line.starts_with("[")) {
        prefixed = true;
        chatter.add(line);
      } else {
        EXPECT_TRUE(line.starts_with("rank 0 ")) << line.substr(0, 300);
        chatter.add("[rank 0] " + line);
      }
    }
  }
  EXPECT_TRUE(prefixed);
  chatter.check();
}

TEST(Output, OneRankPassesThroughUntouched) {
  TemporaryFolder folder;
  const Outcome outcome = run_launch(
      {"-n", "1", "--log-dir", folder.path(), "--", "printf", "50%%\\r\\001\\377no newline"});
  EXPECT_EQ(outcome.out, "50%\r\001\377no newline");
  EXPECT_EQ(read_text(folder.path().string() + "/rank-0.log"), outcome.out);
}

TEST(Output, PrefixesCanBeForcedOrForbidden) {
  const std::string script = "echo out; echo err >&2";
  Outcome outcome = run_launch({"-n", "1", "--prefix=always", "sh", "-c", script});
  EXPECT_EQ(outcome.out, "[rank 0] out\n");
  EXPECT_THAT(outcome.err, HasSubstr("[rank 0] err\n"));
  outcome = run_launch({"-n", "3", "--prefix=never", "sh", "-c", script});
  EXPECT_EQ(outcome.out, "out\nout\nout\n");
  EXPECT_THAT(outcome.err, HasSubstr("err\nerr\nerr\n"));
}

TEST(Output, AFileThatIsTooLargeForItsDiskIsSaidOnceAndTheJobGoesOn) {
  TemporaryFolder folder;
  ASSERT_EQ(::symlink("/dev/full", (folder.path().string() + "/rank-0.log").c_str()), 0);
  const Outcome outcome = run_launch(
      {"-n", "1", "--log-dir", folder.path(), "sh", "-c", "for i in 1 2 3; do echo $i; done"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "1\n2\n3\n");
  EXPECT_THAT(outcome.err, HasSubstr("rank-0.log: No space left on device"));
  EXPECT_EQ(lines_of(outcome.err).size(), 2U) << outcome.err;
}

TEST(Output, AReaderThatGoesAwayEndsTheJob) {
  Launch launch({"-n", "2", "--prefix", "never", "sh", "-c", "while :; do echo y; done"});
  launch.wait_for_output("y");
  launch.close_output();
  EXPECT_EQ(launch.wait(milliseconds(5'000)).status, 128 + SIGPIPE);
  EXPECT_TRUE(launch.nothing_left());
}

TEST(Output, AReaderThatDoesNotReadIsWaitedForButNotAfterASignal) {
  Launch launch({"-n", "2", "--prefix", "never", "sh", "-c", "while :; do echo y; done"});
  launch.wait_for_output("y");
  std::this_thread::sleep_for(milliseconds(300));  // nobody reads: every buffer fills
  launch.send(SIGTERM);
  EXPECT_TRUE(launch.nothing_left(milliseconds(2'000)));
  EXPECT_EQ(launch.wait().status, 128 + SIGTERM);
}

TEST(Output, OnATerminalRankZeroKnowsItAndItsLiveLineIsShown) {
  Launch launch({"-n", "2", "sh", "-c",
                 "[ $RANK = 0 ] || exec sleep 1000; echo T=$LOCKSTEP_TERMINAL C=$COLUMNS; "
                 "printf '\\rstep 1'; exec sleep 1000"},
                {.terminal = true});
  launch.wait_for_output("T=1 C=77");
  launch.wait_for_output("\rstep 1");  // though it has no newline
  launch.type("\x03");
  EXPECT_EQ(launch.wait(milliseconds(2'000)).status, 128 + SIGINT);
  EXPECT_TRUE(launch.nothing_left(milliseconds(0)));
}

}  // namespace
}  // namespace lockstep::launch_test
