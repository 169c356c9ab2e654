// TCP sockets with deadlines, and errors that name both ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/env/fd.h"

namespace lockstep {

struct SocketAddress {
  std::string host;  // numeric; with "%interface" when link-local
  std::uint16_t port = 0;

  std::string text() const;  // "10.0.0.1:80", "[::1]:80"
};

// A listening socket on that address alone. Port 0 takes a free one. Throws Error(io): "… in use",
// and Error(invalid_argument) for 0.0.0.0 and ::, which are every address.
Fd listen_on(const std::string& host, std::uint16_t port);
// One connection if one is waiting; invalid otherwise. The socket does not block. Throws Error(io)
// when the process has no descriptors left.
Fd accept_from(const Fd& listener);
// Tries again until it succeeds or the deadline passes (then Error(timeout) with the last reason).
Fd connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline);

// A connection attempt from `own_host` to `to`, both numeric, which goes on by itself: the socket
// becomes writable when it is over. Throws Error(peer_lost) when it fails at once, Error(io) when
// `own_host` cannot be used.
Fd start_connect(const SocketAddress& to, const std::string& own_host);
// Empty while it goes on; then 0, or the errno it has ended with.
std::optional<int> connect_result(const Fd& socket);

// Between two sockets of one host there is no line whose speed to find out: a congestion control
// that does so and paces what it sends (BBR, the default of many clouds) halves the speed of long
// messages. Changes nothing for a connection to another host.
void make_unpaced_within_host(const Fd& socket);

// Reads what has come, up to a bound, and forgets it. Before closing: a socket that is closed with
// unread bytes resets its connection, and the last word sent to the other end is lost.
void discard_unread(const Fd& socket);

SocketAddress local_address(const Fd& socket);
SocketAddress peer_address(const Fd& socket);

}  // namespace lockstep
