#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "lockstep/base/error_of.h"
#include "lockstep/rendezvous/frames.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

struct Job {
  explicit Job(int ranks, milliseconds join_timeout = milliseconds(20'000)) : world_size(ranks) {
    Fd listener = listen_on("127.0.0.1", 0);
    port = local_address(listener).port;
    server = std::make_unique<StoreServer>(std::move(listener),
                                           StoreOptions{ranks, JobKey("secret"), join_timeout});
  }
  std::unique_ptr<StoreClient> client(int rank, int size = 0) const {
    const StoreIdentity identity{rank, size == 0 ? world_size : size,
                                 fmt::format("process {}", 100 + rank), JobKey("secret")};
    return std::make_unique<StoreClient>("127.0.0.1", port, identity, soon());
  }
  int world_size;
  std::uint16_t port = 0;
  std::unique_ptr<StoreServer> server;
};

TEST(Store, ExchangesInRankOrderManyTimes) {
  constexpr int kRanks = 8;
  Job job(kRanks);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = job.client(rank);
      for (int round = 0; round < 20; ++round) {
        const auto texts = client->exchange(fmt::format("{}-{}", rank, round), soon());
        bool good = texts.size() == kRanks;
        for (int peer = 0; good && peer < kRanks; ++peer) {
          good = texts[static_cast<std::size_t>(peer)] == fmt::format("{}-{}", peer, round);
        }
        right += good;
      }
      client->leave("has left");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kRanks * 20);
}

TEST(Store, TwoProcessesOfOneRankAreBothTold) {  // S-RDV-03
  Job job(2);
  const auto first = job.client(0);
  const auto second = job.client(0);
  for (const auto& client : {first.get(), second.get()}) {
    const Error error = error_of([&] { client->exchange("", soon()); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("RANK=0"));
    EXPECT_THAT(error.what(), HasSubstr("process 100 and process 100"));
  }
}

TEST(Store, DifferingWorldSizesAreToldToAll) {  // S-RDV-03
  Job job(2);
  const auto first = job.client(0);
  const auto second = job.client(1, 3);
  for (const auto& client : {first.get(), second.get()}) {
    const Error error = error_of([&] { client->exchange("", soon()); });
    EXPECT_THAT(error.what(), HasSubstr("WORLD_SIZE"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (process 101) has 3"));
  }
}

TEST(Store, MissingRanksAreNamedAtTheTimeout) {
  Job job(4, milliseconds(200));
  const auto first = job.client(0);
  const auto third = job.client(2);
  for (const auto& client : {first.get(), third.get()}) {
    const Error error = error_of([&] { client->exchange("", soon()); });
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_THAT(error.what(), HasSubstr("2 of 4"));
    EXPECT_THAT(error.what(), HasSubstr("missing: rank 1, 3"));
  }
}

TEST(Store, ALateClaimIsRefusedAndTheGroupGoesOn) {
  Job job(2);
  const auto first = job.client(0);
  const auto second = job.client(1);
  std::thread other([&] { second->exchange("b", soon()); });
  EXPECT_THAT(first->exchange("a", soon()), ElementsAre("a", "b"));
  other.join();
  const auto late = job.client(1);
  EXPECT_THAT(error_of([&] { late->exchange("", soon()); }).what(), HasSubstr("RANK=1"));
  std::thread again([&] { second->exchange("d", soon()); });
  EXPECT_THAT(first->exchange("c", soon()), ElementsAre("c", "d"));
  again.join();
}

TEST(Store, ALostRankIsToldToAllWithItsName) {
  Job job(3);
  const auto first = job.client(0);
  const auto second = job.client(1);
  auto third = job.client(2);
  third.reset();  // closes without a farewell, as a killed process does
  for (const auto& client : {first.get(), second.get()}) {
    const Error error = error_of([&] { client->exchange("", soon()); });
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 (process 102)"));
  }
}

TEST(Store, ARankThatLeftIsNotLostButMissed) {
  Job job(2);
  const auto first = job.client(0);
  const auto second = job.client(1);
  second->leave("has left the group");
  const Error error = error_of([&] { first->exchange("", soon()); });
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 has left the group"));
}

TEST(Store, AReportReachesEverybodyWithItsCode) {
  Job job(2);
  const auto first = job.client(0);
  const auto second = job.client(1);
  second->report(Error(Code::timeout, "rank 1 waited in vain"));
  const Error error = error_of([&] { first->exchange("", soon()); });
  EXPECT_EQ(error.code(), Code::timeout);
  EXPECT_STREQ(error.what(), "rank 1 waited in vain");
}

TEST(Store, TheEndOfTheStoreIsALossUnlessRank0SaidFarewell) {
  auto job = std::make_unique<Job>(2);
  auto first = job->client(0);
  const auto second = job->client(1);
  job->server.reset();
  EXPECT_THAT(error_of([&] { second->exchange("", soon()); }).what(), HasSubstr("rank 0"));

  job = std::make_unique<Job>(2);
  first = job->client(0);
  const auto other = job->client(1);
  first->leave("has left the group");
  job->server.reset();
  std::atomic<int> broken = 0;
  other->listen({[&](const Error&) { ++broken; }, {}});
  pollfd entry{other->fd(), POLLIN, 0};
  do {
    ASSERT_GT(::poll(&entry, 1, 10'000), 0);
  } while (other->on_readable());
  EXPECT_EQ(broken, 0);
}

TEST(Store, AWrongSecretAndStrangersAreRefusedAndHarmNobody) {
  Job job(1);
  const StoreIdentity identity{0, 1, "thief", JobKey("guess")};
  const Error error = error_of([&] { StoreClient("127.0.0.1", job.port, identity, soon()); });
  EXPECT_EQ(error.code(), Code::unauthenticated);
  Fd stranger = connect_to("127.0.0.1", job.port, soon());
  const std::string garbage(500, 'z');
  ASSERT_EQ(::send(stranger.get(), garbage.data(), garbage.size(), 0), 500);
  Fd silent = connect_to("127.0.0.1", job.port, soon());
  const auto client = job.client(0);
  EXPECT_THAT(client->exchange("alone", soon()), ElementsAre("alone"));
}

TEST(Frames, SurviveCuttingAndRefuseDamage) {
  const std::string bytes = encode({FrameType::exchange, "hello"}) + encode({FrameType::leave, ""});
  std::string buffer;
  int frames = 0;
  for (const char byte : bytes) {
    buffer += byte;
    while (decode(buffer)) ++frames;
  }
  EXPECT_EQ(frames, 2);
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = encode({FrameType::exchange, "hello"});
    damaged[random() % damaged.size()] ^= static_cast<char>(1 + random() % 255);
    try {
      // More bytes may be asked for, when the length grew; a frame must not come out.
      EXPECT_FALSE(decode(damaged).has_value());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep
