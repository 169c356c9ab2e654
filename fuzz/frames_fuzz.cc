// rendezvous/frames.h: whatever comes on a store connection, in whatever pieces.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace lockstep;
  if (bytes == 0) return 0;
  // The first byte says how long the pieces are.
  const std::size_t piece_bytes = data[0] + std::size_t{1};
  const std::string_view all(reinterpret_cast<const char*>(data + 1), bytes - 1);
  std::string buffer;
  try {
    for (std::size_t at = 0; at < all.size(); at += piece_bytes) {
      buffer += all.substr(at, piece_bytes);
      while (const auto frame = decode(buffer)) {
        std::string again = encode(*frame);
        const auto same = decode(again);
        LOCKSTEP_CHECK(same && same->type == frame->type && same->payload == frame->payload);
      }
    }
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::corrupt);
  }
  return 0;
}
