// Starting: what ranks get, ports, programs, bad usage.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "lockstep/env/cpu.h"
#include "tests/launch/launch.h"

namespace lockstep::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The lines of `rank_helper where`, by rank.
std::map<int, std::string> where_lines(const Outcome& outcome) {
  std::map<int, std::string> lines;
  for (const std::string& line : lines_of(outcome.out)) {
    const std::size_t at = line.find("rank=");
    if (at == std::string::npos) continue;
    EXPECT_TRUE(lines.emplace(number_after(line, "rank="), line.substr(at)).second) << line;
  }
  return lines;
}

std::string field(const std::string& line, const std::string& name) {
  const std::size_t start = line.find(name + "=") + name.size() + 1;
  return line.substr(start, line.find(' ', start) - start);
}

TEST(Start, EachRankFindsItsPlaceAndTheSecretIsNewForEachJob) {
  std::set<std::string> secrets;
  for (int job = 0; job < 2; ++job) {
    const Outcome outcome = run_launch({"-n", "3", "--", rank_helper(), "where"},
                                       {.environment = {"RANK=9", "LOCKSTEP_SECRET=old"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const auto lines = where_lines(outcome);
    ASSERT_EQ(lines.size(), 3U) << outcome.out;
    for (const auto& [rank, line] : lines) {
      EXPECT_EQ(field(line, "world"), "3");
      EXPECT_EQ(field(line, "local"), fmt::format("{}/3", rank));
      EXPECT_EQ(field(line, "addr"), "127.0.0.1");
      EXPECT_EQ(field(line, "terminal"), "-");
      EXPECT_EQ(field(line, "secret"), field(lines.at(0), "secret"));
    }
    EXPECT_THAT(field(lines.at(0), "secret"), ContainsRegex("^[0-9a-f]{64}$"));
    secrets.insert(field(lines.at(0), "secret"));
  }
  EXPECT_EQ(secrets.size(), 2U);
}

TEST(Start, WithoutDashesAndWithoutNItUsesAllUsableCores) {
  const Outcome outcome = run_launch({rank_helper(), "where"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(where_lines(outcome).size(), static_cast<std::size_t>(usable_core_count()));
}

TEST(Start, ProgramsOptionsAreItsOwn) {
  const Outcome outcome = run_launch({"-n", "1", "echo", "-n", "--help", "x"});
  EXPECT_EQ(outcome.out, "--help x");
}

// S-PERF-02. How the shares come out on larger machines: lockstep/env/cpu_test.cc.
TEST(SPerf02, ThreadsAreTheShareOfTheUsableCoresAndLoggedOnce) {
  const int cores = usable_core_count();
  for (const int ranks : {1, 2, 4}) {
    const Outcome outcome = run_launch({"-n", std::to_string(ranks), "--", rank_helper(), "where"});
    const std::string expected = std::to_string(std::max(1, cores / ranks));
    const auto lines = where_lines(outcome);
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(ranks)) << outcome.err;
    for (const auto& [rank, line] : lines) {
      for (const char* name : {"omp", "openblas", "mkl"}) EXPECT_EQ(field(line, name), expected);
    }
    ASSERT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("lockstep run: "), HasSubstr(expected + " thread"),
                                   HasSubstr(fmt::format("{} usable core", cores))));
  }
}

TEST(SPerf02, AnAffinityMaskLimitsThreadsAndRanks) {
  const std::vector<int> one = {allowed_cores().back()};
  Outcome outcome = run_launch({"-n", "1", "--", rank_helper(), "where"}, {.cores = one});
  EXPECT_EQ(field(where_lines(outcome).at(0), "omp"), "1");
  EXPECT_THAT(outcome.err, HasSubstr("1 usable core,"));
  outcome = run_launch({"--no-pin", rank_helper(), "where"}, {.cores = one});
  EXPECT_EQ(where_lines(outcome).size(), 1U);
}

TEST(SPerf02, AUsersNumberOfThreadsIsKept) {
  const Outcome outcome = run_launch({"-n", "2", "--", rank_helper(), "where"},
                                     {.environment = {"OMP_NUM_THREADS=3", "MKL_NUM_THREADS=5"}});
  for (const auto& [rank, line] : where_lines(outcome)) {
    EXPECT_EQ(field(line, "omp"), "3");
    EXPECT_EQ(field(line, "openblas"), "3");
    EXPECT_EQ(field(line, "mkl"), "5");
  }
  EXPECT_THAT(outcome.err, HasSubstr("OMP_NUM_THREADS=3 as set"));
}

TEST(Start, EachRankIsPinnedToItsShareUnlessToldNotTo) {
  const std::vector<int> cores = allowed_cores();
  const auto text = [](const std::vector<int>& list) {
    std::string all = "cores=";
    for (const int core : list) all += fmt::format(" {}", core);
    return all + " secret";
  };
  for (const auto& [rank, line] :
       where_lines(run_launch({"-n", "2", "--", rank_helper(), "where"}))) {
    EXPECT_THAT(line, HasSubstr(text(cores_of_rank(cores, rank, 2))));
  }
  for (const auto& [rank, line] :
       where_lines(run_launch({"-n", "2", "--no-pin", "--", rank_helper(), "where"}))) {
    EXPECT_THAT(line, HasSubstr(text(cores)));
  }
}

TEST(Start, OnlyRankZeroReadsStandardInput) {
  const std::string own = std::filesystem::read_symlink("/proc/self/fd/0").string();
  const Outcome outcome =
      run_launch({"-n", "2", "--prefix", "always", "--", "sh", "-c", "readlink /proc/self/fd/0"});
  EXPECT_THAT(outcome.out, HasSubstr("[rank 0] " + own + "\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[rank 1] /dev/null\n"));
}

TEST(Start, ReadingFromATerminalFailsInsteadOfStoppingTheRank) {
  const Outcome outcome =
      run_launch({"-n", "1", "sh", "-c", "read line || echo no input"}, {.terminal = true});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("no input"));
}

// A listening socket on 127.0.0.1, on a port that is not given out automatically: nobody takes it
// by chance after it has been closed.
class Holder {
 public:
  Holder() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 1000; ++i) {
      port_ = 20'000 + (::getpid() + i) % 10'000;
      address.sin_port = htons(static_cast<std::uint16_t>(port_));
      const auto* generic = reinterpret_cast<const sockaddr*>(&address);
      if (::bind(socket_.get(), generic, sizeof(address)) == 0) break;
    }
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
  }
  int port() const { return port_; }

 private:
  Fd socket_;
  int port_ = 0;
};

TEST(SRdv01, APortThatIsHeldIsNamedWithItsHolder) {
  const Holder holder;
  const Outcome outcome = run_launch(
      {"-n", "2", "--port", std::to_string(holder.port()), "--", "echo", "must not start"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_EQ(outcome.out, "");
  ASSERT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err,
              StartsWith(fmt::format("lockstep run: 127.0.0.1:{} is in use by pid {} (",
                                     holder.port(), ::getpid())));
}

TEST(SRdv01, AutomaticPortsNeverCollide) {
  const Holder holder;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Launch>> launches;
    for (int i = 0; i < 8; ++i) {
      launches.push_back(std::make_unique<Launch>(
          std::vector<std::string>{"-n", "2", "--", rank_helper(), "meet"}));
    }
    for (auto& launch : launches) {
      const Outcome outcome = launch->wait();
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_EQ(outcome.out, "all met\n");
    }
  }
}

TEST(SRdv01, APortInTimeWaitIsFree) {
  int port = 0;
  {
    const Holder holder;
    port = holder.port();
  }
  for (int round = 0; round < 3; ++round) {
    const Outcome outcome =
        run_launch({"-n", "4", "--port", std::to_string(port), "--", rank_helper(), "meet"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_FALSE(is_listening(port));
    std::string time_wait;
    for (const std::string& line : lines_of(read_text("/proc/net/tcp"))) {
      if (line.find(fmt::format(":{:04X} ", port)) != std::string::npos) time_wait += line + "\n";
    }
    EXPECT_THAT(time_wait, HasSubstr(" 06 ")) << "the test no longer leaves TIME_WAIT behind";
  }
}

struct Refused {
  std::vector<std::string> arguments;
  int status;
  std::string text;
};

TEST(Start, WhatCannotBeIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string plain = folder.path().string() + "/plain";
  std::ofstream(plain) << "text";
  const std::string broken = folder.path().string() + "/broken";
  std::ofstream(broken) << "#!/no/such/interpreter\n";
  ::chmod(broken.c_str(), 0755);
  const Refused cases[] = {
      {{"-n", "0", "true"}, 2, "-n must be a number of ranks from 1 to 4096, not '0'"},
      {{"-n", "-2", "true"}, 2, "not '-2'"},
      {{"-n", "two", "true"}, 2, "not 'two'"},
      {{"-n", "5000", "true"}, 2, "not '5000'"},
      {{"-n", "2"}, 2, "no program to run"},
      {{"--logdir", "x", "true"}, 2, "did you mean --log-dir?"},
      {{"-n", "2", "--", "/no/such/program"}, 127, "/no/such/program: No such file"},
      {{"-n", "2", "--", "no-such-program"}, 127, "'no-such-program': not found in PATH"},
      {{"-n", "2", "--", plain}, 126, plain + ": Permission denied"},
      {{"-n", "2", "--", "/tmp"}, 126, "/tmp: Is a directory"},
      {{"-n", "2", "--log-dir", plain + "/x", "true"}, 1, plain + "/x"},
  };
  for (const Refused& each : cases) {
    const Outcome outcome = run_launch(each.arguments);
    EXPECT_EQ(outcome.status, each.status) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    ASSERT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("lockstep run: "), HasSubstr(each.text)));
  }
  // This one is found out only by starting it.
  const Outcome outcome = run_launch({"-n", "2", "--", broken});
  EXPECT_EQ(outcome.status, 127);
  EXPECT_THAT(outcome.err,
              EndsWith("lockstep run: cannot run " + broken + ": No such file or directory\n"));
}

TEST(Start, AScriptWithoutAFirstLineRunsInTheShell) {
  TemporaryFolder folder;
  const std::string script = folder.path().string() + "/script";
  std::ofstream(script) << "echo \"$1 of $WORLD_SIZE\"\n";
  ::chmod(script.c_str(), 0755);
  const Outcome outcome = run_launch({"-n", "1", script, "one"});
  EXPECT_EQ(outcome.out, "one of 1\n") << outcome.err;
}

}  // namespace
}  // namespace lockstep::launch_test
