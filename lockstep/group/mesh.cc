#include "lockstep/group/mesh.h"

#include <poll.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/engine/execution.h"
#include "lockstep/transport/handshake.h"
#include "lockstep/transport/tcp/tcp_link.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

namespace {

// A stranger that connects and is silent holds up the others for no longer than this.
constexpr std::chrono::milliseconds kGreetTimeout{5'000};

// The next connection from a rank above this one that it does not have yet.
Hello accept_one(const Fd& listener, const StoreIdentity& identity, const Deadline& deadline,
                 Fd& socket) {
  while (true) {
    pollfd entry{listener.get(), POLLIN, 0};
    if (::poll(&entry, 1, deadline.remaining_ms()) <= 0 && deadline.passed()) {
      fail(Code::timeout, "rank {} waited {:.0f} s for the other ranks to connect to it at {}",
           identity.rank, deadline.elapsed_s(), local_address(listener).text());
    }
    socket = accept_from(listener);
    if (!socket.valid()) continue;
    try {
      const auto greet_by = Deadline::after(
          std::min(kGreetTimeout, std::chrono::milliseconds(deadline.remaining_ms())));
      const Hello hello = greet_as_server(socket, identity.secret, greet_by);
      if (hello.purpose == Purpose::data) return hello;
    } catch (const Error& error) {
      log_warning(fmt::format("rank {}", identity.rank), "refused a connection from {}: {}",
                  peer_address(socket).text(), error.what());
    }
  }
}

}  // namespace

std::vector<std::unique_ptr<Link>> connect_mesh(StoreClient& store, const StoreIdentity& identity,
                                                const Deadline& deadline) {
  const Fd listener = listen_on(store.local().host, 0);
  const SocketAddress own = local_address(listener);
  WireWriter writer;
  writer.put_text(own.host);
  writer.put(own.port);
  const std::vector<std::string> addresses = store.exchange(writer.bytes(), deadline);

  std::vector<Fd> sockets(addresses.size());
  for (int peer = 0; peer < identity.rank; ++peer) {
    WireReader reader(addresses[static_cast<std::size_t>(peer)]);
    const std::string host = reader.get_text();
    const auto port = reader.get<std::uint16_t>();
    try {
      sockets[static_cast<std::size_t>(peer)] = connect_to(host, port, deadline);
      greet_as_client(sockets[static_cast<std::size_t>(peer)], {Purpose::data, identity.rank},
                      identity.secret, deadline);
    } catch (const Error& error) {
      fail(error.code(), "rank {} cannot connect to rank {} at {}: {}", identity.rank, peer,
           SocketAddress{host, port}.text(), error.what());
    }
  }
  for (int missing = identity.world_size - 1 - identity.rank; missing > 0;) {
    Fd socket;
    const Hello hello = accept_one(listener, identity, deadline, socket);
    const auto peer = static_cast<std::size_t>(hello.rank);
    const bool expected = hello.rank > identity.rank && hello.rank < identity.world_size;
    if (!expected || sockets[peer].valid()) continue;
    sockets[peer] = std::move(socket);
    --missing;
  }

  std::vector<std::unique_ptr<Link>> links(sockets.size());
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (!sockets[peer].valid()) continue;
    links[peer] = std::make_unique<TcpLink>(std::move(sockets[peer]), identity.rank,
                                            static_cast<int>(peer), describe);
  }
  return links;
}

}  // namespace lockstep
