// S-RDV-06: many ranks connect to one store at once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/transport/tcp/greeting.h"

namespace lockstep {
namespace {

constexpr int kProcesses = 16;
constexpr int kThreads = 64;
constexpr int kClients = kProcesses * kThreads;
constexpr int kRounds = 10;

// One rank: its text is there for all, and it looks at ten others'.
bool take_part(std::uint16_t port, int rank) {
  const auto deadline = Deadline::after(std::chrono::seconds(60));
  StoreClient client("127.0.0.1", port, {rank, kClients, "a client", JobKey("secret")}, deadline);
  const auto texts = client.exchange(fmt::format("text of {}", rank), deadline);
  bool right = texts.size() == kClients;
  std::mt19937 random(static_cast<unsigned>(rank));
  for (int i = 0; i < 10 && right; ++i) {
    const auto other = random() % kClients;
    right = texts[other] == fmt::format("text of {}", other);
  }
  client.exchange("", deadline);
  client.leave("has left");
  return right;
}

int run_clients(std::uint16_t port, int process) {
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, rank = process * kThreads + i] {
      try {
        right += take_part(port, rank);
      } catch (const Error& error) {
        std::fprintf(stderr, "client %d: %s\n", rank, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return right == kThreads ? 0 : 1;
}

std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Forked while this process has one thread; they wait for the port.
struct Crowd {
  Crowd() {
    EXPECT_EQ(::pipe(port_pipe), 0);
    for (int process = 0; process < kProcesses; ++process) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        // Where cores are few: what is measured is the store, not who gets a core.
        ::setpriority(PRIO_PROCESS, 0, 19);
        std::uint16_t port = 0;
        if (::read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) ::_exit(2);
        ::_exit(run_clients(port, process));
      }
      pids.push_back(pid);
    }
  }
  int succeed(std::uint16_t port) {
    for (int i = 0; i < kProcesses; ++i) {
      EXPECT_EQ(::write(port_pipe[1], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    }
    int succeeded = 0;
    for (const pid_t pid : pids) {
      int status = 0;
      EXPECT_EQ(::waitpid(pid, &status, 0), pid);
      succeeded += status == 0;
    }
    ::close(port_pipe[0]);
    ::close(port_pipe[1]);
    return succeeded;
  }
  int port_pipe[2] = {-1, -1};
  std::vector<pid_t> pids;
};

TEST(Crowd, AThousandClientsAtOnceAllSucceedAndTheStoreAnswersMeanwhile) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < kClients + 300) GTEST_SKIP() << "the hard limit of open files is too low";
  const auto files_before = open_files();
  for (int round = 0; round < kRounds; ++round) {
    rlimit low = before;
    low.rlim_cur = 256;  // the store raises it
    ::setrlimit(RLIMIT_NOFILE, &low);
    Crowd crowd;
    Fd listener = listen_on("127.0.0.1", 0);
    const std::uint16_t port = local_address(listener).port;
    auto server = std::make_unique<StoreServer>(
        std::move(listener), StoreOptions{kClients, JobKey("secret"), std::chrono::seconds(60)});
    std::atomic<bool> over = false;
    std::chrono::steady_clock::duration slowest{};
    std::thread ping([&] {
      while (!over) {
        const auto start = std::chrono::steady_clock::now();
        const auto deadline = Deadline::after(std::chrono::seconds(20));
        greet(Stream(connect_to("127.0.0.1", port, deadline)),
              Handshake::as_client({Purpose::store, 0, 0}, "secret"), deadline);
        slowest = std::max(slowest, std::chrono::steady_clock::now() - start);
      }
    });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(crowd.succeed(port), kProcesses);
    const auto took = std::chrono::steady_clock::now() - start;
    over = true;
    ping.join();
    server.reset();
    EXPECT_LT(took, std::chrono::seconds(20));
    EXPECT_LT(slowest, std::chrono::seconds(1));
    EXPECT_EQ(open_files(), files_before);
    const auto in_ms = [](auto time) {
      return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
    };
    std::printf("%d clients in %d ms, slowest answer in %d ms\n", kClients, in_ms(took),
                in_ms(slowest));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace lockstep
