// An encrypting end that is sent anything. (OpenSSL is fuzzed by its makers; what is tested here is
// how its complaints are taken.)
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/stream.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace lockstep;
  static const JobKey key("a secret", true);
  for (const End end : {End::client, End::server}) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) return 0;
    const Fd peer(fds[0]);
    Stream stream = key.open(Fd(fds[1]), end);
    std::array<std::byte, 64> read{};
    try {
      stream.read(read);
      [[maybe_unused]] const auto put = ::send(peer.get(), data, bytes, MSG_NOSIGNAL);
      for (int i = 0; i < 3; ++i) LOCKSTEP_CHECK(stream.read(read) == 0);
    } catch (const Error& error) {
      LOCKSTEP_CHECK(error.code() != Code::invalid_argument);
    }
  }
  return 0;
}
