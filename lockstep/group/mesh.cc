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
// How long to try before looking whether the group still stands.
constexpr std::chrono::milliseconds kLookUp{200};

// The next connection from a rank above this one that it does not have yet.
Hello accept_one(const Fd& listener, StoreClient& store, const StoreIdentity& identity,
                 const Deadline& deadline, Fd& socket) {
  while (true) {
    pollfd entries[] = {{listener.get(), POLLIN, 0}, {store.fd(), POLLIN, 0}};
    ::poll(entries, 2, deadline.remaining_ms());
    store.throw_if_broken();
    if (deadline.passed()) {
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

Fd connect_one(const SocketAddress& to, StoreClient& store, const StoreIdentity& identity,
               const Deadline& deadline) {
  while (true) {
    store.throw_if_broken();
    const auto left = std::chrono::milliseconds(deadline.remaining_ms());
    try {
      Fd socket = connect_to(to.host, to.port, Deadline::after(std::min(kLookUp, left)));
      greet_as_client(socket, {Purpose::data, identity.rank}, identity.secret, deadline);
      return socket;
    } catch (const Error& error) {
      if (error.code() != Code::timeout || deadline.passed()) throw;
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
      sockets[static_cast<std::size_t>(peer)] =
          connect_one({host, port}, store, identity, deadline);
    } catch (const Error& error) {
      store.throw_if_broken();
      fail(error.code(), "rank {} cannot connect to rank {} at {}: {}", identity.rank, peer,
           SocketAddress{host, port}.text(), error.what());
    }
  }
  for (int missing = identity.world_size - 1 - identity.rank; missing > 0;) {
    Fd socket;
    const Hello hello = accept_one(listener, store, identity, deadline, socket);
    const auto peer = static_cast<std::size_t>(hello.rank);
    const bool expected = hello.rank > identity.rank && hello.rank < identity.world_size;
    if (!expected || sockets[peer].valid()) continue;
    sockets[peer] = std::move(socket);
    --missing;
  }

  // Nobody may leave, and the store with rank 0, before all are connected.
  store.exchange("", deadline);
  std::vector<std::unique_ptr<Link>> links(sockets.size());
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (!sockets[peer].valid()) continue;
    links[peer] = std::make_unique<TcpLink>(std::move(sockets[peer]), identity.rank,
                                            static_cast<int>(peer), describe);
  }
  return links;
}

}  // namespace lockstep
