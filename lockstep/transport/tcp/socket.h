// TCP sockets with deadlines, and errors that name both ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/env/fd.h"

namespace lockstep {

struct SocketAddress {
  std::string host;  // numeric
  std::uint16_t port = 0;

  std::string text() const;  // "10.0.0.1:80", "[::1]:80"
};

// A listening socket on that address alone. Port 0 takes a free one. Throws Error(io): "… in use".
Fd listen_on(const std::string& host, std::uint16_t port);
// One connection if one is waiting; invalid otherwise. The socket does not block. Throws Error(io)
// when the process has no descriptors left.
Fd accept_from(const Fd& listener);
// Tries again until it succeeds or the deadline passes (then Error(timeout) with the last reason).
Fd connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline);

SocketAddress local_address(const Fd& socket);
SocketAddress peer_address(const Fd& socket);

// Whole or not at all. Throw Error(timeout), or Error(peer_lost) when the other end is gone.
void read_exactly(const Fd& socket, std::span<char> bytes, const Deadline& deadline);
void write_exactly(const Fd& socket, std::string_view bytes, const Deadline& deadline);

}  // namespace lockstep
