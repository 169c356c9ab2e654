#include "lockstep/transport/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::string_view kMagic = "LKSTEP";
constexpr std::size_t kReleaseBytes = 16;
constexpr std::size_t kChallengeBytes = 32;
// Where the protocol version and the release stand in hello and answer.
constexpr std::size_t kProtocolAt = kMagic.size();
constexpr std::size_t kHelloReleaseAt = 16;
constexpr std::size_t kAnswerReleaseAt = 8;
constexpr std::size_t kAnswerProofAt = kAnswerBytes - kProofBytes;

std::string challenge() {
  std::string bytes(kChallengeBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), kChallengeBytes) != 1) {
    fail(Code::io, "the system has no random numbers to give");
  }
  return bytes;
}

std::string release() {
  std::string text = kVersion;
  text.resize(kReleaseBytes, '\0');
  return text;
}

std::string release_at(std::string_view bytes, std::size_t at) {
  const std::string_view text = bytes.substr(at, kReleaseBytes);
  return std::string(text.substr(0, text.find('\0')));
}

std::uint16_t protocol_of(std::string_view bytes) {
  return WireReader(bytes.substr(kProtocolAt, 2)).get<std::uint16_t>();
}

std::string prove(std::string_view who, std::string_view hello, std::string_view answer,
                  std::string_view secret) {
  std::string text(who);
  text += hello;
  text += answer.substr(0, kAnswerProofAt);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &length) == nullptr ||
      length != kProofBytes) {
    fail(Code::io, "HMAC-SHA256 is not available from the system's OpenSSL");
  }
  return std::string(reinterpret_cast<const char*>(digest.data()), kProofBytes);
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void require_magic(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    fail(Code::corrupt, "the other end does not speak Lockstep's protocol");
  }
}

[[noreturn]] void fail_protocol(std::string_view other, std::size_t release_offset) {
  fail(
      Code::unsupported,
      "the other end runs Lockstep {} (protocol {}), this end {} (protocol {}): all ranks need the "
      "same build",
      release_at(other, release_offset), protocol_of(other), kVersion, kProtocolVersion);
}

}  // namespace

std::string make_hello(const Hello& hello) {
  WireWriter writer;
  writer.put_raw(kMagic);
  writer.put(kProtocolVersion);
  writer.put(static_cast<std::uint16_t>(hello.purpose));
  writer.put(std::uint16_t{0});
  writer.put(hello.rank);
  writer.put_raw(release());
  writer.put_raw(challenge());
  LOCKSTEP_CHECK(writer.bytes().size() == kHelloBytes);
  return writer.bytes();
}

Hello parse_hello(std::string_view hello) {
  require_magic(hello);
  WireReader reader(hello.substr(kMagic.size()));
  reader.get<std::uint16_t>();
  const auto purpose = reader.get<std::uint16_t>();
  reader.get<std::uint16_t>();
  if (purpose > static_cast<std::uint16_t>(Purpose::data)) {
    fail(Code::corrupt, "a connection asks for the unknown purpose {}", purpose);
  }
  return {static_cast<Purpose>(purpose), reader.get<std::int32_t>()};
}

std::string make_answer(std::string_view hello, std::string_view secret) {
  WireWriter writer;
  writer.put_raw(kMagic);
  writer.put(kProtocolVersion);
  writer.put_raw(release());
  writer.put_raw(challenge());
  std::string answer = writer.bytes();
  answer += prove("server", hello, answer + std::string(kProofBytes, '\0'), secret);
  LOCKSTEP_CHECK(answer.size() == kAnswerBytes);
  return answer;
}

std::string make_proof(std::string_view hello, std::string_view answer, std::string_view secret) {
  require_magic(answer);
  if (protocol_of(answer) != kProtocolVersion) fail_protocol(answer, kAnswerReleaseAt);
  if (!same(answer.substr(kAnswerProofAt), prove("server", hello, answer, secret))) {
    fail(Code::unauthenticated,
         "the other end does not know this job's secret: LOCKSTEP_SECRET must be the same on all "
         "ranks, and the port must belong to this job");
  }
  return prove("client", hello, answer, secret);
}

void verify_proof(std::string_view hello, std::string_view answer, std::string_view proof,
                  std::string_view secret) {
  if (protocol_of(hello) != kProtocolVersion) fail_protocol(hello, kHelloReleaseAt);
  if (!same(proof, prove("client", hello, answer, secret))) {
    fail(Code::unauthenticated, "the other end does not know this job's secret (LOCKSTEP_SECRET)");
  }
}

void greet_as_client(const Fd& socket, const Hello& hello, std::string_view secret,
                     const Deadline& deadline) {
  const std::string bytes = make_hello(hello);
  write_exactly(socket, bytes, deadline);
  std::array<char, kAnswerBytes> answer{};
  read_exactly(socket, answer, deadline);
  write_exactly(socket, make_proof(bytes, {answer.data(), answer.size()}, secret), deadline);
}

Hello greet_as_server(const Fd& socket, std::string_view secret, const Deadline& deadline) {
  std::array<char, kHelloBytes> bytes{};
  read_exactly(socket, bytes, deadline);
  const std::string_view hello(bytes.data(), bytes.size());
  const Hello parsed = parse_hello(hello);
  const std::string answer = make_answer(hello, secret);
  write_exactly(socket, answer, deadline);
  std::array<char, kProofBytes> proof{};
  read_exactly(socket, proof, deadline);
  verify_proof(hello, answer, {proof.data(), proof.size()}, secret);
  return parsed;
}

}  // namespace lockstep
