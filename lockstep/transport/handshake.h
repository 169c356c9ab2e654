// The first bytes of every connection: both ends prove that they know the job's secret (HMAC-SHA256
// over fresh challenges, RFC 2104) and speak the same protocol, before anything else is read.
//
//   client → server   hello    64 bytes: magic, protocol, purpose, rank, release, group, challenge
//   server → client   answer   88 bytes: magic, protocol, release, challenge, proof
//   client → server   proof    32 bytes
//
// Pure but for randomness: bytes in, bytes out, no socket. docs/wire-format.md has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class Purpose : std::uint16_t { store = 0, data = 1 };

inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::size_t kAnswerBytes = 88;
inline constexpr std::size_t kProofBytes = 32;

struct Hello {
  Purpose purpose = Purpose::store;
  std::int32_t rank = 0;
  std::uint64_t group = 0;  // which group of the job a data connection belongs to
};

std::string make_hello(const Hello& hello);
// Throws Error(corrupt) when it is no hello of Lockstep. The protocol is not judged here: the
// answer tells the other end ours, so that both can name both.
Hello parse_hello(std::string_view hello);
std::string make_answer(std::string_view hello, std::string_view secret);
// Checks the server's answer and returns the client's proof. Throws Error(unsupported) with both
// releases when the protocols differ, Error(unauthenticated) when the secrets do.
std::string make_proof(std::string_view hello, std::string_view answer, std::string_view secret);
// `hello` has passed parse_hello(). Throws like make_proof.
void verify_proof(std::string_view hello, std::string_view answer, std::string_view proof,
                  std::string_view secret);

// Whether these first bytes of the other end are TLS.
bool looks_encrypted(std::string_view bytes);

// One end of the exchange as a state machine.
//
//   client:  ready ──▶ hello sent ──answer──▶ done
//   server:  ready ──hello──▶ answered ──proof──▶ done
class Handshake {
 public:
  static Handshake as_client(const Hello& hello, const std::string& secret);
  static Handshake as_server(const std::string& secret);

  // Takes what it needs off the front of `in` and appends what is to be sent to `out`, as far as
  // the bytes go. Throws as the functions above do; `out` may hold a last word for the other end
  // then.
  void advance(std::string& in, std::string& out);
  bool done() const { return stage_ == Stage::done; }
  // How many bytes the other end's next message has; 0 when done.
  std::size_t awaited_bytes() const;
  // Of a server: what the client says, once hello_known(); proved only when done().
  bool hello_known() const { return stage_ == Stage::answered || stage_ == Stage::done; }
  const Hello& hello() const { return parsed_; }

 private:
  enum class Stage { client_ready, hello_sent, server_ready, answered, done };
  Handshake(Stage stage, const std::string& secret) : stage_(stage), secret_(secret) {}

  Stage stage_;
  std::string secret_;
  Hello parsed_;
  std::string hello_;
  std::string answer_;
};

}  // namespace lockstep
