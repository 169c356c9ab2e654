#include "lockstep/transport/tcp/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/greeting.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct Sockets {
  Sockets() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a = Fd(fds[0]);
    b = Fd(fds[1]);
  }
  Fd a, b;
};

Deadline soon() {
  return Deadline::after(std::chrono::seconds(10));
}

void wait_for(int fd, short events) {
  pollfd entry{fd, events, 0};
  ::poll(&entry, 1, 10'000);
}

void write_all(Stream& stream, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t half = (bytes.size() - done) / 2;
    const std::size_t put = stream.write(bytes.subspan(done, half), bytes.subspan(done + half));
    if (put == 0) wait_for(stream.fd(), stream.write_events());
    done += put;
  }
}

std::string read_all(Stream& stream, std::size_t wanted) {
  std::string text(wanted, '\0');
  for (std::size_t done = 0; done < wanted;) {
    const auto to = std::as_writable_bytes(std::span(text)).subspan(done);
    const std::size_t half = to.size() / 2;
    const std::size_t got = stream.read(to.first(half), to.subspan(half));
    if (got == 0) wait_for(stream.fd(), stream.read_events());
    done += got;
  }
  return text;
}

std::string random_text(std::size_t bytes) {
  std::mt19937 random(5);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>(random());
  return text;
}

// Passes bytes on in both directions and keeps what it has seen.
struct Relay {
  Relay(Fd left_, Fd right_) : left(std::move(left_)), right(std::move(right_)) {
    thread = std::thread([this] {
      while (pass(left, right) && pass(right, left)) {
        pollfd entries[] = {{left.get(), POLLIN, 0}, {right.get(), POLLIN, 0}};
        ::poll(entries, 2, -1);
      }
    });
  }
  ~Relay() { thread.join(); }

  bool pass(const Fd& from, const Fd& to) {
    std::array<char, 65'536> bytes;
    const auto got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    for (ssize_t done = 0; got > 0 && done < got;) {
      const auto put =
          ::send(to.get(), bytes.data() + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL);
      if (put > 0) done += put;
      if (put < 0 && errno != EAGAIN) return false;
      if (put < 0) wait_for(to.get(), POLLOUT);
    }
    if (got > 0) seen.append(bytes.data(), static_cast<std::size_t>(got));
    return true;
  }

  Fd left, right;
  std::string seen;  // read it when the thread has ended
  std::thread thread;
};

TEST(Stream, MovesBytesBothWaysInClearAndEncrypted) {
  const std::string text = random_text(3'000'001);
  for (const bool encrypt : {false, true}) {
    Sockets sockets;
    const JobKey key("secret", encrypt);
    Stream a = key.open(std::move(sockets.a), End::client);
    Stream b = key.open(std::move(sockets.b), End::server);
    std::string at_a;
    std::thread other([&] {
      EXPECT_EQ(read_all(b, text.size()), text);
      write_all(b, text);
      write_all(b, "short");
    });
    write_all(a, text);
    EXPECT_EQ(read_all(a, text.size()), text);
    EXPECT_EQ(read_all(a, 5), "short");
    other.join();
    b.close();
    std::array<std::byte, 1> byte;
    EXPECT_THROW(a.read(byte), Error);
  }
}

TEST(Stream, WhatIsOnTheWireIsNotThePayload) {
  const std::string text = "a secret weight, many times over. ";
  for (const bool encrypt : {false, true}) {
    Sockets left, right;
    std::string seen;
    {
      Relay relay(std::move(left.b), std::move(right.a));
      const JobKey key("secret", encrypt);
      const Hello hello{Purpose::data, 1, 0};
      std::thread other([&] {
        Stream b = greet(key.open(std::move(right.b), End::server), Handshake::as_server("secret"),
                         soon());
        EXPECT_EQ(read_all(b, text.size()), text);
        write_all(b, text);
        std::array<std::byte, 1> end;
        EXPECT_THROW(while (b.read(end) == 0) wait_for(b.fd(), b.read_events()), Error);
      });
      {
        Stream a = greet(key.open(std::move(left.a), End::client),
                         Handshake::as_client(hello, "secret"), soon());
        write_all(a, text);
        EXPECT_EQ(read_all(a, text.size()), text);
      }
      relay.thread.join();
      relay.left.reset();
      relay.right.reset();
      other.join();
      seen = relay.seen;
      relay.thread = std::thread([] {});
    }
    EXPECT_GT(seen.size(), 2 * text.size());
    EXPECT_EQ(seen.find(text) == std::string::npos, encrypt);
    EXPECT_EQ(seen.find("LKSTEP") == std::string::npos, encrypt);
  }
}

Error error_of(Stream& a, Stream& b) {
  std::array<std::byte, 1> byte{};
  const auto deadline = soon();
  while (!deadline.passed()) {
    try {
      a.read(byte);
    } catch (const Error& error) {
      return error;
    }
    try {
      b.read(byte);
    } catch (const Error&) {
      // The error that counts here is the other's.
    }
  }
  return Error(Code::timeout, "no error");
}

TEST(Stream, AnotherSecretIsRefusedByBothEnds) {
  for (const bool client : {true, false}) {
    Sockets sockets;
    Stream a = JobKey("right", true).open(std::move(sockets.a), End::client);
    Stream b = JobKey("wrong", true).open(std::move(sockets.b), End::server);
    const Error error = client ? error_of(a, b) : error_of(b, a);
    EXPECT_EQ(error.code(), Code::unauthenticated) << error.what();
  }
}

TEST(Stream, MeddledBytesAreRefused) {
  Sockets sockets;
  const int raw = sockets.b.get();
  const JobKey key("secret", true);
  Stream a = key.open(std::move(sockets.a), End::client);
  Stream b = key.open(std::move(sockets.b), End::server);
  std::thread other([&] { write_all(b, "x"); });
  EXPECT_EQ(read_all(a, 1), "x");
  other.join();
  const std::string record = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'q');
  ASSERT_EQ(::send(raw, record.data(), record.size(), 0), 37);
  EXPECT_EQ(error_of(a, b).code(), Code::corrupt);
}

TEST(Stream, ACertificateIsNoSubstituteForTheSecret) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  ASSERT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  Sockets sockets;
  SSL* server = SSL_new(context);
  SSL_set_fd(server, sockets.b.get());
  SSL_set_accept_state(server);
  Stream a = JobKey("secret", true).open(std::move(sockets.a), End::client);
  std::optional<Error> error;
  for (int turn = 0; turn < 1000 && !error; ++turn) {
    std::array<std::byte, 1> byte;
    try {
      a.read(byte);
      SSL_do_handshake(server);
    } catch (const Error& caught) {
      error = caught;
    }
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::unauthenticated) << error->what();
  SSL_free(server);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(JobKey, EncryptingWithoutASecretIsRefused) {
  try {
    JobKey("", true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_SECRET"));
  }
}

}  // namespace
}  // namespace lockstep
