// transport/handshake.h: both ends, fed by somebody who does not know the secret.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/transport/handshake.h"

namespace {

using namespace lockstep;

void feed(Handshake handshake, std::string_view bytes, std::size_t piece_bytes) {
  std::string in;
  std::string out;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
      in += bytes.substr(at, piece_bytes);
      handshake.advance(in, out);
    }
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::corrupt || error.code() == Code::unsupported ||
                   error.code() == Code::unauthenticated);
  }
  LOCKSTEP_CHECK(!handshake.done());
  LOCKSTEP_CHECK(out.size() <= kHelloBytes + kAnswerBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::size_t piece_bytes = data[0] + std::size_t{1};
  const std::string_view all(reinterpret_cast<const char*>(data + 1), bytes - 1);
  feed(Handshake::as_server("a secret that nobody tells"), all, piece_bytes);
  feed(Handshake::as_client({Purpose::data, 1, 2}, "a secret that nobody tells"), all, piece_bytes);
  // The pure functions, with messages of any length.
  try {
    parse_hello(all);
    const std::string answer = make_answer(all, "s");
    verify_proof(all, answer, all.substr(0, kProofBytes), "s");
  } catch (const Error&) {
    // Refused.
  }
  try {
    make_proof(make_hello({}), all, "s");
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
