// The first bytes of every connection: both ends prove that they know the job's secret (HMAC-SHA256
// over fresh challenges, RFC 2104) and speak the same protocol, before anything else is read.
//
//   client → server   hello    64 bytes: magic, protocol, purpose, rank, release, challenge
//   server → client   answer   88 bytes: magic, protocol, release, challenge, proof
//   client → server   proof    32 bytes
//
// The functions are pure but for randomness; docs/wire-format.md has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/env/fd.h"

namespace lockstep {

enum class Purpose : std::uint16_t { store = 0, data = 1 };

inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::size_t kAnswerBytes = 88;
inline constexpr std::size_t kProofBytes = 32;

struct Hello {
  Purpose purpose = Purpose::store;
  std::int32_t rank = 0;
};

std::string make_hello(const Hello& hello);
// Throws Error(corrupt) when it is no hello of Lockstep. The protocol is not judged here: the
// answer tells the other end ours, so that both can name both.
Hello parse_hello(std::string_view hello);
std::string make_answer(std::string_view hello, std::string_view secret);
// Checks the server's answer and returns the client's proof. Throws Error(unsupported) with both
// releases when the protocols differ, Error(unauthenticated) when the secrets do.
std::string make_proof(std::string_view hello, std::string_view answer, std::string_view secret);
// Throws like make_proof.
void verify_proof(std::string_view hello, std::string_view answer, std::string_view proof,
                  std::string_view secret);

// The whole exchange on a connected socket.
void greet_as_client(const Fd& socket, const Hello& hello, std::string_view secret,
                     const Deadline& deadline);
Hello greet_as_server(const Fd& socket, std::string_view secret, const Deadline& deadline);

}  // namespace lockstep
