// Connections that are made on first use: Acceptor, Dialer, and links over them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "lockstep/base/error_of.h"
#include "lockstep/transport/tcp/acceptor.h"
#include "lockstep/transport/tcp/dialer.h"
#include "lockstep/transport/tcp/stream_link.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kGroup = 42;

std::string describe(const Announcement&) {
  return "an operation";
}

// Rank 0 listens, rank 1 connects.
struct Two {
  explicit Two(const JobKey& of_0 = JobKey("secret"), const JobKey& of_1 = JobKey("secret"),
               const std::string& host = "127.0.0.1")
      : acceptor(std::make_unique<Acceptor>(listen_on(host, 0), of_0, "rank 0")),
        address(acceptor->address()) {
    acceptor->open(kGroup);
    zero = std::make_unique<StreamLink>(std::make_unique<Awaited>(acceptor.get(), kGroup, 1), 0, 1,
                                        describe);
    one = dial(host, of_1, kGroup);
  }
  std::unique_ptr<StreamLink> dial(const std::string& host, const JobKey& key,
                                   std::uint64_t group) const {
    auto dialer = std::make_unique<Dialer>(address, host, Hello{Purpose::data, 1, group}, key);
    return std::make_unique<StreamLink>(std::move(dialer), 1, 0, describe);
  }
  // As the engine does: progress, then poll(2) what the links ask for.
  void drive(const std::function<bool()>& until) const {
    const auto deadline = Deadline::after(std::chrono::seconds(10));
    while (!until()) {
      ASSERT_FALSE(deadline.passed());
      std::vector<pollfd> fds;
      for (StreamLink* link : {zero.get(), one.get()}) {
        if (link == nullptr || link->wanted_events() == 0) continue;
        link->progress();
        if (link->wanted_events() != 0) fds.push_back({link->fd(), link->wanted_events(), 0});
      }
      if (!until()) ::poll(fds.data(), fds.size(), deadline.remaining_ms());
    }
  }

  std::unique_ptr<Acceptor> acceptor;
  SocketAddress address;
  std::unique_ptr<StreamLink> zero;
  std::unique_ptr<StreamLink> one;
};

std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

void exchange(Two& two) {
  std::vector<int> from_0(100'000, 7), from_1(3, 9), at_0(3), at_1(100'000);
  two.zero->send(bytes_of(from_0), {});
  two.zero->receive(bytes_of(at_0), {});
  two.one->send(bytes_of(from_1), {});
  two.one->receive(bytes_of(at_1), {});
  const auto before_0 = two.zero->received(), before_1 = two.one->received();
  two.drive([&] { return two.zero->received() > before_0 && two.one->received() > before_1; });
  EXPECT_EQ(at_0, from_1);
  EXPECT_EQ(at_1, from_0);
}

TEST(Connect, OnFirstUseFromEitherSideInClearAndEncrypted) {
  for (const bool encrypt : {false, true}) {
    for (const std::string host : {"127.0.0.1", "::1"}) {
      const JobKey key("secret", encrypt);
      Two two(key, key, host);
      EXPECT_EQ(two.zero->wanted_events(), 0);
      EXPECT_EQ(two.one->wanted_events(), 0);
      pollfd nobody{two.acceptor->fd(kGroup, 1), Acceptor::kEvents, 0};
      EXPECT_EQ(::poll(&nobody, 1, 0), 0);
      exchange(two);
      exchange(two);
    }
  }
}

TEST(Connect, NothingPacesWhatStaysOnThisHost) {
  Two two;
  exchange(two);
  for (const StreamLink* link : {two.zero.get(), two.one.get()}) {
    std::array<char, 16> name{};
    socklen_t bytes = name.size();
    ASSERT_EQ(::getsockopt(link->fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
    EXPECT_STREQ(name.data(), "reno");
  }
}

TEST(Connect, TheListeningSideMayWantToSendFirst) {
  Two two;
  std::vector<int> sent(10, 4), got(10);
  two.zero->send(bytes_of(sent), {});
  for (int i = 0; i < 3; ++i) two.zero->progress();
  EXPECT_EQ(two.zero->sent(), 0);
  two.one->receive(bytes_of(got), {});
  two.drive([&] { return two.zero->sent() == 1 && two.one->received() == 1; });
  EXPECT_EQ(got, sent);
}

TEST(Connect, ANewGroupsConnectionWaitsForItsLink) {
  Two two;
  const auto other = two.dial("127.0.0.1", JobKey("secret"), kGroup + 1);
  std::vector<int> sent(10, 4), got(10);
  other->send(bytes_of(sent), {});
  const auto deadline = Deadline::after(std::chrono::seconds(10));
  while (other->sent() == 0 && !deadline.passed()) {
    other->progress();
    EXPECT_FALSE(two.acceptor->take(kGroup, 1));
  }
  two.acceptor->open(kGroup + 1);
  pollfd there{two.acceptor->fd(kGroup + 1, 1), Acceptor::kEvents, 0};
  EXPECT_EQ(::poll(&there, 1, 10'000), 1);
  std::optional<Stream> stream;
  while (!stream && !deadline.passed()) stream = two.acceptor->take(kGroup + 1, 1);
  ASSERT_TRUE(stream);
  StreamLink link(std::move(*stream), 0, 1, describe);
  link.receive(bytes_of(got), {});
  while (link.received() == 0 && !deadline.passed()) link.progress();
  EXPECT_EQ(got, sent);
}

TEST(Connect, WhatOneLinkFindsForAnotherWakesTheOther) {
  Two two;
  std::vector<int> values(4, 5), got(4);
  two.zero->receive(bytes_of(got), {});
  two.zero->progress();
  two.one->send(bytes_of(values), {});
  const auto deadline = Deadline::after(std::chrono::seconds(10));
  while (two.one->sent() == 0 && !deadline.passed()) {
    two.one->progress();
    EXPECT_FALSE(two.acceptor->take(kGroup, 2));
  }
  pollfd waiting{two.zero->fd(), two.zero->wanted_events(), 0};
  while (::poll(&waiting, 1, 0) == 0 && !deadline.passed()) two.acceptor->take(kGroup, 2);
  // Only the link itself takes it, however often others ask.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(two.acceptor->take(kGroup, 2));
  waiting.fd = two.zero->fd();
  EXPECT_EQ(::poll(&waiting, 1, 0), 1);
  two.drive([&] { return two.zero->received() == 1; });
  EXPECT_EQ(got, values);
}

TEST(Connect, StrangersHoldUpNobody) {
  Two two;
  std::vector<Fd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(
        connect_to("127.0.0.1", two.address.port, Deadline::after(std::chrono::seconds(10))));
    const std::string text(static_cast<std::size_t>(i), 'x');
    ::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  const auto start = std::chrono::steady_clock::now();
  exchange(two);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Connect, AnotherSecretIsRefused) {
  for (const bool encrypt : {false, true}) {
    Two two(JobKey("right", encrypt), JobKey("wrong", encrypt));
    std::vector<int> values(4);
    two.zero->receive(bytes_of(values), {});
    two.one->send(bytes_of(values), {});
    const Error error = error_of([&] { two.drive([] { return false; }); });
    EXPECT_EQ(error.code(), Code::unauthenticated) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("rank 0"),
                                    HasSubstr(two.address.text()), HasSubstr("secret")));
  }
}

TEST(Connect, OneSideEncryptedIsAClearError) {
  for (const bool first : {false, true}) {
    Two two(JobKey("secret", first), JobKey("secret", !first));
    std::vector<int> values(4);
    two.zero->receive(bytes_of(values), {});
    two.one->send(bytes_of(values), {});
    testing::internal::CaptureStderr();
    const Error error = error_of([&] { two.drive([] { return false; }); });
    const std::string warned = testing::internal::GetCapturedStderr();
    EXPECT_EQ(error.code(), Code::unsupported) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_ENCRYPT must be the same on all ranks"));
    EXPECT_THAT(warned, HasSubstr("LOCKSTEP_ENCRYPT must be the same on all ranks"));
  }
}

TEST(Connect, NobodyThereIsALostPeerWithBothEndsNamed) {
  Two two;
  two.zero.reset();
  two.acceptor.reset();
  std::vector<int> values(4);
  two.one->send(bytes_of(values), {});
  const Error error = error_of([&] { two.drive([] { return false; }); });
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("rank 1 cannot connect to rank 0: " + two.address.text()),
                    HasSubstr("from 127.0.0.1"), HasSubstr("refused")));
}

TEST(Connect, APeerThatHasLeftIsMissedButNotItsLastBytes) {
  Two two;
  std::vector<int> values(4, 5), got(4);
  two.zero->receive(bytes_of(got), {});
  two.one->send(bytes_of(values), {});
  two.drive([&] { return two.one->sent() == 1; });
  two.one.reset();
  two.acceptor->left(kGroup, 1, "has left the group");
  two.drive([&] { return two.zero->received() == 1; });
  EXPECT_EQ(got, values);

  Two other;
  other.zero->receive(bytes_of(got), {});
  other.zero->progress();
  pollfd waiting{other.zero->fd(), other.zero->wanted_events(), 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  other.acceptor->left(kGroup, 1, "has left the group");
  EXPECT_EQ(::poll(&waiting, 1, 0), 1);  // whoever sleeps wakes up
  const Error error = error_of([&] { other.zero->progress(); });
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("rank 1: it has left the group"));
}

TEST(Connect, ADroppedGreetingIsTriedAgainAFewTimes) {
  const Fd listener = listen_on("127.0.0.1", 0);
  Dialer dialer(local_address(listener), "127.0.0.1", {Purpose::data, 1, kGroup}, JobKey("s"));
  int accepted = 0;
  const Error error = error_of([&] {
    const auto deadline = Deadline::after(std::chrono::seconds(10));
    while (!deadline.passed()) {
      if (accept_from(listener).valid()) ++accepted;
      if (dialer.progress()) FAIL();
    }
  });
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_EQ(accepted, Dialer::kAttemptsMax);
}

}  // namespace
}  // namespace lockstep
