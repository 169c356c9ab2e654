#include "lockstep/group/mesh.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/execution.h"
#include "lockstep/transport/interface.h"
#include "lockstep/transport/tcp/dialer.h"
#include "lockstep/transport/tcp/tcp_link.h"
#include "lockstep/transport/wire.h"

namespace lockstep {

Mesh make_mesh(StoreClient& store, const StoreIdentity& identity, const MeshOptions& options,
               const Deadline& deadline) {
  const std::string route = store.local().host;
  const std::string host =
      options.interface.empty() ? route : address_of_interface(options.interface, route);
  Mesh mesh;
  mesh.group = options.group;
  mesh.acceptor = std::make_unique<Acceptor>(listen_on(host, 0), identity.key,
                                             fmt::format("rank {}", identity.rank));
  mesh.acceptor->open(options.group);
  const auto addresses = store.exchange(address_to_wire(mesh.acceptor->address()), deadline);
  const Hello hello{Purpose::data, identity.rank, options.group};
  mesh.links.resize(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const int peer = static_cast<int>(i);
    if (peer == identity.rank) continue;
    std::unique_ptr<StreamSource> source;
    if (peer < identity.rank) {
      SocketAddress to = address_from_wire(addresses[i]);
      to.host = with_scope_of(to.host, host);
      source = std::make_unique<Dialer>(to, host, hello, identity.key);
    } else {
      source = std::make_unique<Awaited>(mesh.acceptor.get(), options.group, peer);
    }
    mesh.links[i] = std::make_unique<TcpLink>(std::move(source), identity.rank, peer, describe);
  }
  return mesh;
}

std::string address_to_wire(const SocketAddress& address) {
  WireWriter writer;
  writer.put_text(without_scope(address.host));
  writer.put(address.port);
  return writer.bytes();
}

SocketAddress address_from_wire(std::string_view wire) {
  WireReader reader(wire);
  SocketAddress address;
  address.host = reader.get_text();
  address.port = reader.get<std::uint16_t>();
  if (reader.left() != 0 || address.port == 0) {
    fail(Code::corrupt, "a rank's address is none: {} bytes, port {}", wire.size(), address.port);
  }
  return address;
}

}  // namespace lockstep
