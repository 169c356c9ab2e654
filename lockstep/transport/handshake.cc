#include "lockstep/transport/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

constexpr std::string_view kMagic = "LKSTEP";
constexpr std::size_t kReleaseBytes = 16;
constexpr std::size_t kHelloChallengeBytes = 24;
constexpr std::size_t kAnswerChallengeBytes = 32;
// Where the protocol version and the release stand in hello and answer.
constexpr std::size_t kProtocolAt = kMagic.size();
constexpr std::size_t kHelloReleaseAt = 16;
constexpr std::size_t kAnswerReleaseAt = 8;
constexpr std::size_t kAnswerProofAt = kAnswerBytes - kProofBytes;

constexpr const char* kOnlyTheOtherEncrypts =
    "the other end encrypts, this end does not: LOCKSTEP_ENCRYPT must be the same on all ranks";

std::string challenge(std::size_t bytes_wanted) {
  std::string bytes(bytes_wanted, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) !=
      1) {
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

void require_magic(std::string_view bytes, std::size_t bytes_wanted) {
  if (bytes.size() != bytes_wanted || bytes.substr(0, kMagic.size()) != kMagic) {
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
  writer.put(hello.group);
  writer.put_raw(challenge(kHelloChallengeBytes));
  LOCKSTEP_CHECK(writer.bytes().size() == kHelloBytes);
  return writer.bytes();
}

Hello parse_hello(std::string_view hello) {
  require_magic(hello, kHelloBytes);
  WireReader reader(hello.substr(kMagic.size()));
  reader.get<std::uint16_t>();
  const auto purpose = reader.get<std::uint16_t>();
  reader.get<std::uint16_t>();
  if (purpose > static_cast<std::uint16_t>(Purpose::data)) {
    fail(Code::corrupt, "a connection asks for the unknown purpose {}", purpose);
  }
  Hello parsed;
  parsed.purpose = static_cast<Purpose>(purpose);
  parsed.rank = reader.get<std::int32_t>();
  reader.get_raw(kReleaseBytes);
  parsed.group = reader.get<std::uint64_t>();
  return parsed;
}

std::string make_answer(std::string_view hello, std::string_view secret) {
  WireWriter writer;
  writer.put_raw(kMagic);
  writer.put(kProtocolVersion);
  writer.put_raw(release());
  writer.put_raw(challenge(kAnswerChallengeBytes));
  std::string answer = writer.bytes();
  answer += prove("server", hello, answer + std::string(kProofBytes, '\0'), secret);
  LOCKSTEP_CHECK(answer.size() == kAnswerBytes);
  return answer;
}

std::string make_proof(std::string_view hello, std::string_view answer, std::string_view secret) {
  require_magic(answer, kAnswerBytes);
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

bool looks_encrypted(std::string_view bytes) {
  // A TLS record: handshake (22) or alert (21), then its version 3.x.
  return bytes.size() >= 2 && (bytes[0] == 0x16 || bytes[0] == 0x15) && bytes[1] == 0x03;
}

Handshake Handshake::as_client(const Hello& hello, const std::string& secret) {
  Handshake handshake(Stage::client_ready, secret);
  handshake.parsed_ = hello;
  return handshake;
}

Handshake Handshake::as_server(const std::string& secret) {
  return {Stage::server_ready, secret};
}

std::size_t Handshake::awaited_bytes() const {
  switch (stage_) {
    case Stage::client_ready:
    case Stage::hello_sent:
      return kAnswerBytes;
    case Stage::server_ready:
      return kHelloBytes;
    case Stage::answered:
      return kProofBytes;
    case Stage::done:
      return 0;
  }
  return 0;
}

void Handshake::advance(std::string& in, std::string& out) {
  if (stage_ == Stage::client_ready) {
    hello_ = make_hello(parsed_);
    out += hello_;
    stage_ = Stage::hello_sent;
  }
  // Not of a proof, whose bytes may be any.
  const bool first = stage_ == Stage::server_ready || stage_ == Stage::hello_sent;
  if (first && looks_encrypted(in)) {
    // Answering in clear tells an encrypting client what is wrong.
    if (stage_ == Stage::server_ready) out += make_hello({});
    fail(Code::unsupported, kOnlyTheOtherEncrypts);
  }
  while (stage_ != Stage::done && in.size() >= awaited_bytes()) {
    const std::string bytes = in.substr(0, awaited_bytes());
    in.erase(0, bytes.size());
    if (stage_ == Stage::hello_sent) {
      out += make_proof(hello_, bytes, secret_);
      stage_ = Stage::done;
    } else if (stage_ == Stage::server_ready) {
      parsed_ = parse_hello(bytes);
      hello_ = bytes;
      answer_ = make_answer(hello_, secret_);
      out += answer_;
      stage_ = Stage::answered;
    } else {
      verify_proof(hello_, answer_, bytes, secret_);
      stage_ = Stage::done;
    }
  }
}

}  // namespace lockstep
