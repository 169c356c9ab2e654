#include "lockstep/transport/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& call, Code code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Handshake, SameSecretIsAcceptedAndCarriesTheRank) {
  const std::string hello = make_hello({Purpose::data, 7, 0});
  const std::string answer = make_answer(hello, "secret");
  const std::string proof = make_proof(hello, answer, "secret");
  verify_proof(hello, answer, proof, "secret");
  EXPECT_EQ(parse_hello(hello).rank, 7);
  EXPECT_EQ(parse_hello(hello).purpose, Purpose::data);
}

TEST(Handshake, AnotherSecretIsRefusedByBothSides) {
  const std::string hello = make_hello({Purpose::store, 1, 0});
  const std::string answer = make_answer(hello, "right");
  message_of([&] { make_proof(hello, answer, "wrong"); }, Code::unauthenticated);
  message_of([&] { verify_proof(hello, answer, std::string(kProofBytes, 'x'), "right"); },
             Code::unauthenticated);
}

TEST(Handshake, AProofIsOfNoUseForAnotherConnection) {
  const std::string hello = make_hello({Purpose::store, 1, 0});
  const std::string answer = make_answer(hello, "secret");
  const std::string proof = make_proof(hello, answer, "secret");
  const std::string again = make_answer(hello, "secret");
  message_of([&] { verify_proof(hello, again, proof, "secret"); }, Code::unauthenticated);
}

TEST(Handshake, AnotherProtocolIsRefusedWithBothReleasesNamed) {  // S-HANG-04, "another build"
  std::string hello = make_hello({Purpose::store, 1, 0});
  hello[6] = 9;
  hello.replace(16, 5, "9.8.7");
  const std::string answer = make_answer(hello, "secret");
  const std::string said =
      message_of([&] { verify_proof(hello, answer, std::string(kProofBytes, 'x'), "secret"); },
                 Code::unsupported);
  EXPECT_THAT(said, HasSubstr("9.8.7"));
  EXPECT_THAT(said, HasSubstr("protocol 9"));
  EXPECT_THAT(said, HasSubstr("0.1.0"));
}

TEST(Handshake, StrangersAreRefused) {
  message_of(
      [] { parse_hello("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/7.88.1\r\n\r\n"); },
      Code::corrupt);
}

TEST(Handshake, BothEndsByteByByte) {
  Handshake client = Handshake::as_client({Purpose::data, 3, 77}, "secret");
  Handshake server = Handshake::as_server("secret");
  std::string to_client, to_server, server_in, client_in;
  client.advance(client_in, to_server);
  for (int moved = 0; !client.done() || !server.done(); ++moved) {
    ASSERT_LT(moved, 1000);
    const bool up = !to_server.empty();
    std::string& from = up ? to_server : to_client;
    (up ? server_in : client_in) += from.at(0);
    from.erase(0, 1);
    if (up) {
      server.advance(server_in, to_client);
    } else {
      client.advance(client_in, to_server);
    }
  }
  EXPECT_EQ(server.hello().rank, 3);
  EXPECT_EQ(server.hello().group, 77u);
}

TEST(Handshake, AProofMayBeginLikeARecordOfTls) {
  const std::string hello = make_hello({Purpose::data, 3, 0});
  for (int tried = 0, found = 0; found < 2; ++tried) {
    ASSERT_LT(tried, 2'000'000);
    Handshake server = Handshake::as_server("secret");
    std::string in = hello, answer;
    server.advance(in, answer);
    in = make_proof(hello, answer, "secret");
    if (!looks_encrypted(in)) continue;
    ++found;
    server.advance(in, answer);
    EXPECT_TRUE(server.done());
  }
}

TEST(Handshake, CutBytesAreRefusedNotReadBeyond) {
  const std::string hello = make_hello({Purpose::store, 1, 0});
  const std::string answer = make_answer(hello, "secret");
  for (std::size_t bytes = 0; bytes < kAnswerBytes; ++bytes) {
    message_of([&] { make_proof(hello, answer.substr(0, bytes), "secret"); }, Code::corrupt);
    if (bytes < kHelloBytes)
      message_of([&] { parse_hello(hello.substr(0, bytes)); }, Code::corrupt);
  }
}

TEST(Socket, ConnectingToNobodyEndsAtTheDeadlineAndSaysWhere) {
  std::uint16_t port = 0;
  { port = local_address(listen_on("127.0.0.1", 0)).port; }
  const std::string said = message_of(
      [&] { connect_to("127.0.0.1", port, Deadline::after(std::chrono::milliseconds(50))); },
      Code::timeout);
  EXPECT_THAT(said, HasSubstr(fmt::format("127.0.0.1:{}", port)));
  EXPECT_THAT(said, HasSubstr("refused"));
}

TEST(Socket, EveryAddressIsNotListenedOn) {
  for (const char* host : {"0.0.0.0", "::"}) {
    EXPECT_THAT(message_of([&] { listen_on(host, 0); }, Code::invalid_argument),
                HasSubstr("every address"));
  }
}

TEST(Socket, APortInUseAndANumberForANameAreNamed) {
  const Fd listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_address(listener).port;
  EXPECT_THAT(message_of([&] { listen_on("127.0.0.1", port); }, Code::io), HasSubstr("in use"));
  EXPECT_THAT(message_of([&] { listen_on("123", 0); }, Code::invalid_argument),
              HasSubstr("0.0.0.123"));
}

TEST(Handshake, AProofThatBeginsLikeTlsIsStillAProof) {
  Handshake client = Handshake::as_client({Purpose::data, 3, 0}, "secret");
  Handshake server = Handshake::as_server("secret");
  std::string in, hello, answer;
  client.advance(in, hello);
  server.advance(hello, answer);
  std::string proof = "\x16\x03";
  server.advance(proof, answer);
  EXPECT_FALSE(server.done());
  proof.resize(kProofBytes, 'x');
  message_of([&] { server.advance(proof, answer); }, Code::unauthenticated);
}

}  // namespace
}  // namespace lockstep
