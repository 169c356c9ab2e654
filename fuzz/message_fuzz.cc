// transport/tcp/message.h, alone and behind a link. The checksum is mended, or nothing would get
// past it.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/base/checksum.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/message.h"
#include "lockstep/transport/tcp/stream_link.h"

namespace {

using namespace lockstep;

constexpr std::size_t kCheckedBytes = 56;

std::string describe(const Announcement& operation) {
  return std::to_string(operation.sequence);
}

void through_a_link(std::span<const std::uint8_t> bytes) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) return;
  const Fd peer(fds[0]);
  StreamLink link(Stream(Fd(fds[1])), 0, 1, describe);
  std::array<std::byte, 16> landed;
  link.receive(landed, {});
  link.receive(landed, {});
  [[maybe_unused]] const auto put = ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  try {
    link.progress();
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::corrupt || error.code() == Code::invalid_argument);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  through_a_link({data, bytes});
  if (bytes < kMessageHeaderBytes) return 0;
  MessageHeader header;
  std::memcpy(header.data(), data, header.size());
  if (const auto message = decode_header(header)) {
    LOCKSTEP_CHECK(encode_header(*message) == header);
  }
  const std::uint64_t sum = checksum(header.data(), kCheckedBytes);
  for (std::size_t i = 0; i < sizeof(sum); ++i) {
    header[kCheckedBytes + i] = static_cast<std::byte>(sum >> (8 * i) & 0xff);
  }
  if (const auto message = decode_header(header)) {
    LOCKSTEP_CHECK(encode_header(*message) == header);
  }
  through_a_link({reinterpret_cast<const std::uint8_t*>(header.data()), header.size()});
  return 0;
}
