#include "lockstep/transport/tcp/stream_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <numeric>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string describe(const Announcement& operation) {
  return fmt::format("operation {} of {}", operation.sequence, operation.count);
}

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    raw = fds[0];
    a = std::make_unique<StreamLink>(Stream(Fd(fds[0])), 0, 1, describe);
    b = std::make_unique<StreamLink>(Stream(Fd(fds[1])), 1, 0, describe);
  }
  int raw = -1;
  std::unique_ptr<StreamLink> a;
  std::unique_ptr<StreamLink> b;
};

std::span<const std::byte> bytes_of(const std::vector<int>& values) {
  return std::as_bytes(std::span(values));
}
std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(StreamLink, MovesMessagesOfAnySizeBothWaysInOrder) {
  Pair pair;
  Announcement operation;
  std::vector<int> large(1'000'000), small(3), empty, large_in(1'000'000), small_in(3), empty_in;
  std::iota(large.begin(), large.end(), 5);
  std::iota(small.begin(), small.end(), 9);
  for (Link* link : {static_cast<Link*>(pair.a.get()), static_cast<Link*>(pair.b.get())}) {
    link->send(bytes_of(std::as_const(large)), operation);
    link->send(bytes_of(std::as_const(empty)), operation);
    link->send(bytes_of(std::as_const(small)), operation);
  }
  std::vector<int> large_back(1'000'000), small_back(3);
  pair.a->receive(bytes_of(large_in), operation);
  pair.a->receive(bytes_of(empty_in), operation);
  pair.a->receive(bytes_of(small_in), operation);
  pair.b->receive(bytes_of(large_back), operation);
  pair.b->receive(bytes_of(empty_in), operation);
  pair.b->receive(bytes_of(small_back), operation);
  int rounds = 0;
  while (pair.a->received() < 3 || pair.b->received() < 3) {
    pair.a->progress();
    pair.b->progress();
    ASSERT_LT(++rounds, 1'000'000);
  }
  EXPECT_EQ(large_in, large);
  EXPECT_EQ(small_in, small);
  EXPECT_EQ(large_back, large);
  EXPECT_EQ(small_back, small);
  EXPECT_EQ(pair.a->sent(), 3);
  EXPECT_EQ(pair.a->wanted_events(), 0);
}

TEST(StreamLink, AnotherOperationIsRefusedWithBothSidesNamed) {
  Pair pair;
  std::vector<int> values(4), in(4);
  Announcement mine, theirs;
  mine.count = 4;
  theirs.count = 5;
  theirs.sequence = 2;
  pair.a->send(bytes_of(std::as_const(values)), theirs);
  pair.a->progress();
  pair.b->receive(bytes_of(in), mine);
  try {
    pair.b->progress();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is in operation 0 of 4"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0 in operation 2 of 5"));
  }
}

TEST(StreamLink, GarbageAndAGonePeerAreErrors) {
  Pair pair;
  std::vector<int> in(4);
  const std::string garbage(64, 'x');
  ASSERT_EQ(::send(pair.raw, garbage.data(), garbage.size(), 0), 64);
  pair.b->receive(bytes_of(in), {});
  try {
    pair.b->progress();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt);
  }
  Pair other;
  other.a.reset();
  other.b->receive(bytes_of(in), {});
  try {
    other.b->progress();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  }
}

TEST(StreamLink, AQuestionTellsThoseWhoWaitInSomethingElse) {
  Pair pair;
  std::vector<int> in(4);
  Announcement of_root_0{.sequence = 7, .operation = 4, .root = 0, .count = 4};
  Announcement of_root_1 = of_root_0;
  of_root_1.root = 1;
  pair.a->receive(bytes_of(in), of_root_0);
  pair.b->receive(bytes_of(in), of_root_1);
  pair.b->ask(of_root_1);
  pair.b->progress();
  EXPECT_THROW(pair.a->progress(), Error);
}

TEST(StreamLink, OtherQuestionsArePassedOver) {
  Pair pair;
  std::vector<int> values = {1, 2, 3, 4}, in(4);
  const Announcement before{.sequence = 6, .count = 4}, now{.sequence = 7, .count = 4};
  Announcement pairwise = now;
  pairwise.operation = kPairwiseOperation;
  for (const Announcement& operation : {before, now, pairwise}) {
    pair.b->ask(operation);
    pair.b->send(bytes_of(std::as_const(values)), operation);
    pair.b->ask(operation);
    pair.a->receive(bytes_of(in), operation);
  }
  for (int i = 0; i < 10; ++i) {
    pair.b->progress();
    pair.a->progress();
  }
  EXPECT_EQ(pair.b->sent(), 3);
  EXPECT_EQ(pair.a->received(), 3);
  EXPECT_EQ(in, values);
}

TEST(StreamLink, WhoIsAheadNamesWhatItWasInThen) {
  Pair pair;
  std::vector<int> values(4), in(4);
  const Announcement mine{.sequence = 7, .operation = 1, .root = 0, .count = 41};
  const Announcement next{.sequence = 8, .operation = 3, .count = 42};
  const Announcement theirs{.sequence = 7, .operation = 1, .root = 1, .count = 43};
  pair.a->send(bytes_of(std::as_const(values)), mine);
  pair.a->receive(bytes_of(in), next);
  pair.b->send(bytes_of(std::as_const(values)), theirs);
  pair.b->progress();
  try {
    pair.a->progress();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 is in operation 7 of 41, rank 1 in operation 7"));
  }
}

}  // namespace
}  // namespace lockstep
